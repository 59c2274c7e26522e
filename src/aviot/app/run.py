"""The running app: its address, its gate with a token for browsers, and its end."""

from dataclasses import dataclass, field

from fastapi.responses import RedirectResponse

from aviot.app.service import AppService
from aviot.methods.registry import DEFAULT
from aviot.request import MAX_NEW_TOKENS
from aviot.serve.run import At, Serving, in_continuous_batches
from aviot.serve.settings import Limits, Settings
from aviot.session import VideoLM
from aviot.video.checks import ReadLimits
from aviot.web.access import Access
from aviot.web.cookies import Cookies
from aviot.web.gate import SECURITY, Gate

ENDING_SECONDS = 2.0  # in which answers may end after the first signal
PLACES = 4  # answers that are decoded at a time
REQUEST_BYTES = 16_000_000  # of a question, or of a stream's frames; uploads have their own limit, on disk
PATIENT_SECONDS = 3600.0  # of one answer by a large model on a CPU; whoever asks can stop it
LONGEST_SECONDS = 1e6  # of a video
PICTURE_SIDE = 480
KEPT_BYTES = 20_000_000  # of compressed tokens, and of explanations: one tab asks for the latest again at most


@dataclass(frozen=True, kw_only=True)
class AppSettings:
    """What people may send and how it is answered; `name` is the model's."""

    name: str = "aviot"
    upload_bytes: int = 512_000_000
    method: str = DEFAULT
    max_new_tokens: int = MAX_NEW_TOKENS
    read: ReadLimits = field(default_factory=ReadLimits)

    def __post_init__(self) -> None:
        if self.upload_bytes < 1:
            raise ValueError(f"upload_bytes must be at least 1, got {self.upload_bytes}")

    @property
    def served(self) -> Settings:
        """The settings of the server behind the page."""
        limits = Limits(
            upload_bytes=REQUEST_BYTES,
            uploads_bytes=4 * REQUEST_BYTES,
            video_seconds=LONGEST_SECONDS,
            queue=32,
            wait_seconds=PATIENT_SECONDS,
            answer_seconds=PATIENT_SECONDS,
            read=self.read,
        )
        return Settings(
            name=self.name,
            limits=limits,
            method=self.method,
            max_new_tokens=self.max_new_tokens,
            token_bytes=KEPT_BYTES,
            report_bytes=KEPT_BYTES,
            thumbnail=PICTURE_SIDE,
        )


class ServingApp(Serving):
    """The app as it listens; `run` answers until a signal, or until `end` is called."""

    service: AppService

    def __init__(self, lm: VideoLM, settings: AppSettings, at: At) -> None:
        self._upload_bytes = settings.upload_bytes
        super().__init__(in_continuous_batches(lm, PLACES), settings.served, at)

    @property
    def url(self) -> str:
        """The address to open in a browser, with the token if one is needed."""
        return self.access.url

    @property
    def ending_seconds(self) -> float:
        """Seconds after the first signal in which requests may be finished."""
        return ENDING_SECONDS

    def make_service(self, lm: VideoLM, settings: Settings) -> AppService:
        """Return the application."""
        return AppService(lm, settings, self._upload_bytes)

    def make_gate(self, access: Access) -> Gate:
        """Return the gate in front of the application."""
        headers = SECURITY | {"Content-Security-Policy": self.service.page.policy}
        admission = Cookies(access, lambda url, more: RedirectResponse(url, 303, more))
        return Gate(self.service.app, access, admission, self.service.refusal, headers)
