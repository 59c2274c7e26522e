"""Every method of the registry on the same questions: accuracy, tokens and times, for the field experiment."""
