"""A checkpoint whose last block is part full serves a longer prefix in a union of checkpoints. Fixed in this branch.

Found by tests/cache/test_reuse_model.py, seed 30: windows (B=8, W=3) and (B=16, W=1) beside full attention (B=8).
"""
