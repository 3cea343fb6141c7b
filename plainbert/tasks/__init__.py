"""Text in, result out."""
