"""Critics: learned models that predict the return of an episode from its text so far."""
