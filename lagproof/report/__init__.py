"""A run or a comparison as one self-contained HTML page that works offline."""

from lagproof.report.build import write, write_comparison, write_report

__all__ = ["write", "write_comparison", "write_report"]
