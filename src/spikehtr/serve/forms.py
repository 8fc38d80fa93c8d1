"""Bodies of multipart/form-data. Starlette takes one that was cut off for a whole one, and drops its last file."""

from __future__ import annotations

from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException, MultiPartParser

from spikehtr.serve.http_errors import bad_request


class FormParser(MultiPartParser):
    """Refuses a body that is no form or ends too early; then no file of it stays open."""

    ended = False

    def on_end(self) -> None:
        """Called at the last boundary."""
        self.ended = True

    async def parse(self) -> FormData:
        try:
            form = await super().parse()
            if not self.ended:
                raise MultiPartException("it ends before its last boundary")
        except MultiPartException as error:
            self._close()
            raise bad_request(f"the body is not multipart/form-data ({error.message})") from None
        except BaseException:
            self._close()
            raise
        return form

    def _close(self) -> None:
        for file in self._files_to_close_on_error:
            file.close()
