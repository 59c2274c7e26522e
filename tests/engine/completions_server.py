"""A server of the part of vLLM's protocol that is used here, on a decoder folder and transformers' own classes."""

import base64
import io
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from transformers import AutoModelForCausalLM

KEY = "secret"


class CompletionsServer(ThreadingHTTPServer):
    """Answers with a decoder; `trouble` has what goes wrong with the next requests, one entry each."""

    daemon_threads = True

    def __init__(self, folder, port=0, key=None):
        super().__init__(("127.0.0.1", port), _Handler)
        self.decoder, loaded = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        assert not any(loaded.values()), loaded
        self.key, self.trouble, self.left, self.turn = key, [], threading.Event(), threading.Lock()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(folder, port=0, key=None):
    server = CompletionsServer(folder, port, key)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        if self._refused():
            return
        found = {"/health": {}, "/v1/models": {"data": [{"id": "the-decoder"}]}}.get(self.path)
        self._json(404 if found is None else 200, found or {})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self._refused():
            return
        trouble = self.server.trouble.pop(0) if self.server.trouble else None
        if isinstance(trouble, int):
            self._json(trouble, {"error": {"message": f"trouble {trouble}"}})
            return
        assert request["model"] == "the-decoder"
        assert (request["stream"], request["temperature"], request["return_token_ids"]) == (True, 0, True)
        embeds = torch.load(io.BytesIO(base64.b64decode(request["prompt_embeds"])), weights_only=True)
        assert embeds.untyped_storage().nbytes() == embeds.nbytes
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        tokens = self._tokens(embeds[None], request)
        try:
            for number, token in enumerate(tokens):
                if trouble == "break" and number == 1:
                    return
                if trouble == "error" and number == 1:
                    self._event({"error": {"message": "the engine is dead"}})
                    return
                finish = "abort" if trouble == "abort" else "stop" if number == len(tokens) - 1 else None
                self._event({"choices": [{"token_ids": [token], "finish_reason": finish}]})
                if trouble == "abort":
                    break
                if trouble == "slow":
                    self.server.left.wait(0.05)
        except (BrokenPipeError, ConnectionResetError):
            self.server.left.set()
            return
        self.wfile.write(b"data: [DONE]\n\n")

    def _tokens(self, embeds, request):
        with self.server.turn, torch.inference_mode():
            found = self.server.decoder.generate(
                inputs_embeds=embeds,
                attention_mask=torch.ones(embeds.shape[:2], dtype=torch.long),
                max_new_tokens=request["max_tokens"],
                eos_token_id=request["stop_token_ids"] or None,
                do_sample=False,
            )
        return found[0].tolist()

    def _refused(self):
        if self.server.key is None or self.headers["authorization"] == f"Bearer {self.server.key}":
            return False
        self._json(401, {"error": "unauthorized"})
        return True

    def _event(self, data):
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
        self.wfile.flush()

    def _json(self, status, data):
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
