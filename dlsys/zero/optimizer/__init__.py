"""ZeRO's stages 1 and 2: an optimizer whose gradients, state and update the ranks share."""
