"""The reliability table R1 to R20: what is promised, what was measured, and the fault that turns each row red."""
