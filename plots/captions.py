"""Captions of the tables in a README."""

TABLES = {
    "learning_rates": (
        "Correct validation chains at the end of training, and steps; medians of the seeds. "
        "Chosen, where all rates have as many seeds: the best after rounding to "
        "whole percent; ties go to the fewest steps."
    ),
    "score": (
        "D90 on each task, or the best accuracy where no D reaches 90 %. Score: the geometric "
        "mean over the tasks of D90 divided by standard attention's (lower is better); a failed "
        "task counts as twice the largest D tried. In parentheses, the central 95 % of scores if "
        "each D90 is drawn log-uniformly from its bracket. Costs are times standard "
        "attention's: parameters, state and training time each at its own D90, time per step at "
        "equal D; times only for your models. Bold: yours."
    ),
    "d90": (
        "The bracket is (next smaller D tried, D90]. Median accuracy, chain (exact match) and "
        "success (share of seeds at 90 %) are those at D90, else at the largest D. Still "
        "improving: at the bracket's lower end, a seed gained over 2 points in the last fifth of "
        "its steps. × standard: D90 relative to standard attention's, with the interval that the "
        "two brackets allow."
    ),
    "flops": (
        "GFLOPs of one forward pass over L tokens at D90, 2 per multiply-add. Linear layers: the "
        "paper's count as we read it; total: plus token mixing and head."
    ),
    "costs": (
        "Costs at D90. Memory in float32, of sequences of L tokens; FLOPs of a forward pass over "
        "L tokens; training until 90 % of the validation chains are correct, in the median seed."
    ),
    "exponents": (
        "b of D90 ~ L^b, fitted to the brackets (log-logistic, interval-censored), with an "
        "approximate 95 % interval: likelihood ratio, averaged over bootstrap samples of the "
        "seeds. Paper: Table 1."
    ),
    "heads": (
        "b of D90 ~ H^b, fitted to the brackets (log-logistic, interval-censored), with its 95 % "
        "interval. b would be 0.5 if the size of the state, about D²/H numbers, determined D90."
    ),
    "prefixes": (
        "n*, the longest prefix with each label right in 90 % of the test words, by number of "
        "layers (median of the seeds), and how often it doubles per layer, with a 95 % interval."
    ),
    "weights": (
        "The fewest bits per weight, float or integer, at which the median of the seeds answers "
        "90 %, and the weights' size then and in float32. The state is not rounded."
    ),
    "locality": (
        "m: the largest distance from a token to one it depends on, over 1,000 sequences; "
        "m, chain: to one of those after the prompt."
    ),
    "accuracy": (
        "Accuracy of every setting and D. Chain: share of exactly matching chains. By kind, where "
        "recorded: accuracy on each kind of instance, seeds pooled."
    ),
}
