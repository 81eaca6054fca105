"""A kind of contract for import-linter: layers of which one, `*`, is whatever the others do not name.

So a new mechanism is held by the contract from its first file on, without an entry of its own.
"""

from grimp import ImportGraph
from importlinter import ContractCheck
from importlinter.contracts.layers import Layer, LayersContract, ModuleTail


class LayersWithTheRest(LayersContract):
    """As `layers`; modules of the layer `*`, all that no layer names, may not import each other."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Put the modules that no layer names in the place of `*`, and check the layers."""
        (container,) = map(str, self.containers)
        named = {tail.name for layer in self.layers for tail in layer.module_tails}
        children = {module.rpartition(".")[2] for module in graph.find_children(container)}
        rest = Layer({ModuleTail(name, is_optional=True) for name in children - named})
        self.layers = [
            rest if layer.module_tails == {ModuleTail("*")} else layer for layer in self.layers
        ]
        return super().check(graph, verbose)
