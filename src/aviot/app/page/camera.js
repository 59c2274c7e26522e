// A camera as a stream: its pictures are sent at the stream's rate while the tab is open.

const PICTURE_SIDE = 480, QUALITY = 0.85;

const hasCamera = () => Boolean(navigator.mediaDevices?.getUserMedia);

const pictureOf = (video) => new Promise((resolve) => {
  const scale = Math.min(1, PICTURE_SIDE / Math.max(video.videoWidth, video.videoHeight));
  const canvas = el("canvas", { width: Math.round(scale * video.videoWidth), height: Math.round(scale * video.videoHeight) });
  canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
  canvas.toBlob(resolve, "image/jpeg", QUALITY);
});

// Opens a stream of the camera that `video` shows. `tell` hears its counts; `end` ends both.
const openCamera = async (video, tell, fail) => {
  let media;
  try {
    media = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 640 } } });
  } catch {
    throw new Error("The browser gives no camera to this page.");
  }
  const stop = () => { for (const track of media.getTracks()) track.stop(); video.srcObject = null; };
  let stream;
  try {
    video.srcObject = media;
    await video.play();
    stream = await (await send("/v1/streams", { method: "POST" })).json();
  } catch (error) {
    stop();
    throw error;
  }
  const path = `/v1/streams/${stream.id}`, began = performance.now();
  let ended = false;
  const end = () => {
    if (ended) return;
    ended = true;
    clearInterval(timer);
    stop();
    fetch(path, { method: "DELETE", keepalive: true }).catch(() => {});
  };
  let busy = false;
  const push = async () => {
    if (busy || ended) return;
    busy = true;
    try {
      const time = (performance.now() - began) / 1000, picture = await pictureOf(video);
      if (ended || !picture) return; // it ended meanwhile
      const reply = await send(`${path}/frames?time=${time.toFixed(3)}`, { method: "POST", headers: { "Content-Type": "image/jpeg" }, body: picture });
      if (!ended) tell((await reply.json()).status);
    } catch (error) {
      if (!ended) { end(); fail(error); }
    } finally {
      busy = false;
    }
  };
  const timer = setInterval(push, 1000 / stream.fps);
  push();
  return { id: stream.id, end };
};
