"""Training while others generate: TRL's asynchronous trainer with whole collections as its unit."""
