"""Documents in and out: find the lines of a page, read them, write PAGE, ALTO, hOCR, JSON or text."""
