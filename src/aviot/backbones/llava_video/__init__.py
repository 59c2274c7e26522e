"""LLaVA-Video: the layout AVIOT was published on, in ours, the published AVIOT and LLaVA-NeXT's form."""
