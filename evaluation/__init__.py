"""Exact evaluation of a model by free greedy generation, or by the labels that it gives.

judge        accuracies of an evaluation: where to begin reading
breaks       where chains break
parts        what is kept on disk of a long evaluation
tagging      what the model says where sequences have labels
generation   what the model writes, and why float32 may find it out
certify      first mistakes under teacher forcing, by one parallel pass
decode       token after token, with the mixers' own state
levels       the model's logits in bfloat16, float32 and float64, and their tolerances
argmax       which token a row of logits stands for
transcript   what is written so far, sequence by sequence
memory       how much of it fits at a time

Each imports only from those below it.
"""
