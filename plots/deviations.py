"""Where we knowingly differ from the paper, told in every report (docs/reproduction.md)."""

DEVIATIONS = (
    "LIS numbers lie in [n + 1, R) with R = max(250, 2n + 1). A planted run of n distinct numbers "
    "needs R ≥ 2n + 1. The paper gives no range; CoT_benchmark (Feng et al. 2023) takes n + 150.",
    "Arithmetic reduces the leftmost evaluable pair first (order: leftmost), as the paper says. "
    "CoT_benchmark writes the growth order reversed; order: growth gives that, but then the chain "
    "is not a function of the prompt and cannot be matched token for token.",
    "L, the longest sequence, follows from a formula. For Arithmetic it is 2n² + 2n + 1, that is "
    "85, 221, 365, 545 for 6, 10, 13, 16 operators; the paper states 87 (CoT_benchmark's "
    "buffer, 85 + 2), 221, 355, 505. FLOPs are counted at our L.",
    "No prompt occurs both in test (or validation) and in training; prompts are compared as "
    "such. CoT_benchmark compares whole lines, and of Arithmetic, whose order is random there, 240 "
    "of 9,988 test prompts recurred in training (3 operators, 100,000 samples).",
    "Answer accuracy and chain exact match are both measured on free greedy generation. "
    "CoT_benchmark judges Arithmetic by its free-running answer, LIS and ED by teacher-forced "
    "chains.",
    "Unless the recipe is named paper, training follows our fast recipe: Muon at a higher peak "
    "rate that falls with the square root of the step, an exponential moving average of the "
    "weights (which is what is evaluated), no dropout, an early stop when validation is solved and "
    "far fewer steps than the paper's 195,000 of 512 sequences at 1e-4.",
    "Sparse attention uses k = 1 (one block back) unless window_blocks says otherwise; the paper "
    "does not give its k, and conclusions are drawn at k = 1 and k = 2.",
    "Norm placement and learning-rate schedule are not in the paper; CoT_benchmark's are used: "
    "LayerNorm on the embedding, pre-norm blocks, a final LayerNorm, linear warm-up and decay "
    "(paper recipe; stepped per batch). Biases and norm gains do not decay.",
    "ED counts 1, not 2, for each letter of the zeroth row and column of its matrix, as the "
    "generator of CoT_benchmark does and all its samples show; inside, insert and delete cost 2 "
    "and replace 3. The answer is therefore not quite the textbook distance.",
    "ED_Local is our definition: the paper says only that ED was modified to be more local.",
    "The paper's frontier D is not printed there. It is read off its Table 2, whose twelve numbers "
    "equal 2 · 12 · M · D² · L within 5 % for one power of two each.",
)
