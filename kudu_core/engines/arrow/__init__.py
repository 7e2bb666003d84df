"""Tables for engines that query Arrow datasets: ``Table.to_dataset``."""
