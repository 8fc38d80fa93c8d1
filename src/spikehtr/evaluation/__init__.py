"""How well lines were read: error rates, intervals, paired comparisons, confusions."""
