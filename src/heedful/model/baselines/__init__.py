"""What the paper compares the Transformer with, and a variant: recurrent, convolutional and universal stacks."""
