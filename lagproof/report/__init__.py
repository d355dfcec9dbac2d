"""A run, a comparison or a ``whatif`` as one self-contained HTML page that works offline."""

from lagproof.report.build import write, write_comparison, write_report
from lagproof.report.whatif import write_whatif

__all__ = ["write", "write_comparison", "write_report", "write_whatif"]
