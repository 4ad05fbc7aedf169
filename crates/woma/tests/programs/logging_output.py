# program: log to standard error
# sees: INFO:app:started
# sees: WARNING:app:low disk

import logging

logging.basicConfig(level=logging.INFO)
log = logging.getLogger("app")
log.info("started")
log.warning("low disk")
