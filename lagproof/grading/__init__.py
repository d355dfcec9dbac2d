"""What a response says and whether it is right: extraction, cleaning, numbers, and the verifier behind them.

``extract`` finds the answer in a response, ``clean`` turns it into plain LaTeX, ``numbers`` and ``units`` decide the
ordinary cases without any algebra, ``verify`` asks math-verify and sympy and runs only in the processes of ``pool``.
Nothing of an answer is ever evaluated as Python code.
"""
