"""What PySpark 4.0 to 4.3 say differently, each difference in one place."""
