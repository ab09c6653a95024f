"""Text: tokenizer, chat template, incremental detokenizer, stop strings."""

from tidegate.text.detokenizer import Detokenizer
from tidegate.text.stop_strings import StopScan, StopStrings
from tidegate.text.tokenizer import ChatMessage, Tokenizer

__all__ = ["ChatMessage", "Detokenizer", "StopScan", "StopStrings", "Tokenizer"]
