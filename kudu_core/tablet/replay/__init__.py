"""Recovery: records laid into tablets again, and what must hold then."""
