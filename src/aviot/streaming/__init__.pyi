from aviot.streaming.bank import BankView as BankView
from aviot.streaming.bank import SupportBank as SupportBank
from aviot.streaming.provenance import SourceRange as SourceRange
from aviot.streaming.provenance import StreamProvenance as StreamProvenance
from aviot.streaming.records import FrameRange as FrameRange
from aviot.streaming.session import StreamAnswer as StreamAnswer
from aviot.streaming.session import StreamingSession as StreamingSession
from aviot.streaming.status import StreamStatus as StreamStatus
