"""The mesh: who is where, who shares what, and what a group's messages travel on."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlsys import world
from dlsys.hardware import dgx_h100
from dlsys.mesh import GROUPS, Mesh

AXES = ("dp", "pp", "cp", "tp")
ORDERS = ["tp-cp-dp-pp", "tp-dp-cp-pp", "pp-tp-cp-dp", "dp-cp-pp-tp"]


@st.composite
def meshes(draw):
    degrees = {axis: draw(st.integers(1, 3)) for axis in AXES}
    joint = degrees["dp"] * degrees["cp"]
    ep = draw(st.sampled_from([d for d in range(1, joint + 1) if joint % d == 0]))
    return Mesh(**degrees, ep=ep, order=draw(st.sampled_from(ORDERS)))


@given(meshes())
def test_every_rank_has_a_place_of_its_own_that_leads_back_to_it(mesh):
    places = [mesh.coordinates(rank) for rank in range(mesh.size)]
    assert mesh.size == prod(getattr(mesh, axis) for axis in AXES)
    assert [mesh.rank(**place) for place in places] == [*range(mesh.size)]
    assert {tuple(place[a] for a in AXES) for place in places} == set(
        product(*(range(getattr(mesh, axis)) for axis in AXES))
    )


@given(meshes(), st.sampled_from(GROUPS))
def test_groups_of_an_axis_have_every_rank_once_and_its_degree_of_members(mesh, axis):
    joint = mesh.dp * mesh.cp
    degree = {"data": joint, "holders": joint // mesh.ep}.get(axis) or getattr(mesh, axis)
    groups = mesh.groups(axis)
    assert sorted(rank for ranks in groups for rank in ranks) == [*range(mesh.size)]
    for ranks in groups:
        assert len(ranks) == degree
        assert all(mesh.group(axis, rank) == ranks for rank in ranks)


@given(meshes())
def test_experts_are_shared_out_inside_the_joint_data_axis(mesh):
    for rank in range(mesh.size):
        data, ep, holders = (mesh.group(axis, rank) for axis in ("data", "ep", "holders"))
        assert set(ep) & set(holders) == {rank}
        assert set(ep) | set(holders) <= set(data)
        # Those with my experts have my place in their own ep group, and so hold the same ones.
        assert {mesh.group("ep", other).index(other) for other in holders} == {ep.index(rank)}
        first = data.index(ep[0])
        assert data[first : first + mesh.ep] == ep  # consecutive places


def test_the_default_order_is_that_of_megatron():
    # Its own example, core/parallel_state.py: 16 ranks, tp 2, pp 4, so dp 2.
    mesh = Mesh(dp=2, pp=4, tp=2)
    assert mesh.groups("tp") == [(r, r + 1) for r in range(0, 16, 2)]
    assert mesh.groups("dp") == [
        (0, 2),
        (1, 3),
        (4, 6),
        (5, 7),
        (8, 10),
        (9, 11),
        (12, 14),
        (13, 15),
    ]
    assert mesh.groups("pp") == [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]


def test_the_order_of_axes_decides_what_leaves_a_node():
    cluster, mesh = dgx_h100(8), Mesh(dp=4, pp=2, tp=8)
    assert mesh.placement("tp", cluster) == (8, 1, 0)
    assert mesh.placement("dp", cluster) == (1, 4, 4)
    outside = replace(mesh, order="dp-pp-cp-tp")
    assert outside.placement("tp", cluster) == (1, 8, 8)
    assert outside.placement("dp", cluster) == (4, 1, 0)
    # Between: pairs of neighbours in each of two nodes, and a ring that leaves each once.
    assert Mesh(tp=4, cp=4).placement("cp", cluster) == (2, 2, 2)


@pytest.mark.parametrize("mesh", [Mesh(2, 2, 2, 1, ep=4), Mesh(1, 2, 1, 3)], ids=str)
def test_communicators_are_of_the_mesh_s_groups_in_order(mesh):
    def program(comm):
        axes = mesh.split(comm)
        mine = torch.tensor([comm.rank])
        return {axis: getattr(axes, axis).all_gather(mine).tolist() for axis in GROUPS}

    for rank, found in enumerate(world.simulate(program, mesh.size).results):
        assert found == {axis: list(mesh.group(axis, rank)) for axis in GROUPS}


def test_traffic_is_counted_by_the_name_of_the_axis():
    def program(comm):
        Mesh(dp=2, tp=2).split(comm).tp.all_reduce(torch.ones(4))

    assert world.simulate(program, 4).traffic.by_axis() == {"tp": 2 * 2 * 16}


def test_torch_s_device_mesh_has_the_same_coordinates():
    mesh = Mesh(dp=2, pp=1, cp=1, tp=2)

    def program(comm):
        found = mesh.device_mesh()
        return [found.get_local_rank(axis) for axis in AXES], found["tp"].mesh.tolist()

    for rank, (place, tp) in enumerate(world.launch(program, 4).results):
        assert place == [mesh.coordinates(rank)[axis] for axis in AXES]
        assert tp == list(mesh.group("tp", rank))


def wrong_size():
    world.simulate(lambda comm: Mesh(dp=2, tp=2).split(comm), 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Mesh(dp=0), "dp is 0; it must be a whole number of at least 1"),
        (
            lambda: Mesh(dp=4, cp=2, ep=3),
            "8 ranks of dp and cp do not divide by an ep of 3; the nearest that work: 2 and 4",
        ),
        (lambda: Mesh(order="tp-dp"), "order is 'tp-dp'; it must be tp, cp, dp and pp, each once"),
        (lambda: Mesh(dp=2).coordinates(2), "rank is 2; it must be at most 1"),
        (lambda: Mesh(dp=2).rank(dp=2), "dp is 2; it must be at most 1"),
        (lambda: Mesh(dp=2).rank(tq=1), "There is no axis 'tq'; did you mean 'tp'"),
        (lambda: Mesh(dp=2).group("expert", 0), "There is no axis 'expert'"),
        (
            lambda: Mesh(dp=8, tp=4).placement("tp", dgx_h100(2)),
            "cluster is 16; it must be one of at least 32",
        ),
        (wrong_size, "A mesh of dp=2 tp=2 has 4 ranks, and the communicator 2"),
    ],
)
def test_errors_name_what_was_given_and_what_works(call, words):
    with pytest.raises((ValueError, world.RankError), match=words):
        call()
