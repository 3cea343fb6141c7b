"""One module per model_type: what its config keys and weight names mean here."""
