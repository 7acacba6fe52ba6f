"""Files, logging and bookkeeping that know nothing of detection."""
