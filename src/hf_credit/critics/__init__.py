"""Critics: what an episode will still pay, estimated from the text so far."""
