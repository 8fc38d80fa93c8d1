"""The paper's own figures of Section 4.3 and Appendix D, by the label of their table; 512 lines of IAM, base, T = 2."""

from __future__ import annotations

DISTRIBUTION = {  # tab:snn_sparsity_stats
    "modules": 48,
    "mean": 0.0379,
    "median": 0.0218,
    "p90": 0.0911,
    "p99": 0.1512,
    "min": 0.0044,
    "max": 0.1660,
}
STAGES = {  # tab:snn_stage_summary: mean rate, median rate, spike share
    "2D encoder": (0.0176, 0.0175, 0.9665),
    "1D mixer": (0.0581, 0.0389, 0.0335),
}
TOP_SHARE = (  # tab:snn_sparsity_topk: module, share, rate
    ("Enc-S1-B0-PW1", 0.228, 0.021),
    ("Enc-S1-B0-PW2", 0.080, 0.029),
    ("Enc-S1-B0-DW", 0.070, 0.026),
    ("Enc-S2-B0-PW1", 0.066, 0.012),
    ("Enc-S3-B4-PW1", 0.064, 0.023),
)
TOP_RATE = (  # tab:snn_sparsity_topk: module, share, rate
    ("Seq-4-LK-OUT", 0.003, 0.166),
    ("Seq-5-MLP-FC2", 0.003, 0.135),
    ("Seq-4-MLP-FC2", 0.002, 0.126),
    ("Seq-3-LK-OUT", 0.002, 0.122),
    ("Seq-0-MLP-FC2", 0.002, 0.094),
)
ENERGY = {  # tab:energy_compare: dense MACs, MACs, ACs, ratio, eligible share
    "Default": (1.952e11, 1.250e11, 1.517e9, 0.642, 0.359),
    "Pure-spike": (1.953e11, 1.021e11, 1.945e9, 0.525, 0.477),
    "Ideal": (1.953e11, 1.699e8, 4.07e9, 0.00495, 1.000),
}
