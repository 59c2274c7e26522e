import sys, time, json; sys.path.insert(0, "tests")
import torch
from conftest import inputs, make, relative
from aviot import Compressor, CompressorConfig
from aviot.compressor.reference import compress_reference
torch.manual_seed(int(time.time()))
what = sys.argv[1:]
def ref(c, g, **how):
    w = {n: p.detach().cpu() for n, p in c.named_parameters()}
    return compress_reference(c.config, w, **{k: v.cpu() for k, v in g.items()}, **how)
if "check" in what:
    for kw, frames, sup in [({}, 9, 4), ({}, 37, 7), ({}, 63, 16), ({}, 224, 56), ({"grid": (7, 5), "regions": ((1, 1), (3, 2), (4, 5))}, 26, 7), ({"grid": (14, 13)}, 41, 11), ({"granularities":"global"}, 26, 7), ({"fusion":"equal"}, 26, 7), ({"pilot":"unbalanced"}, 26, 7), ({"segments":1}, 26,7), ({"segments":7}, 29,8), ({"regions":((1,1),(1,2),(3,2),(4,5))}, 26,7),({"dim":33,"cost_dim":38},30,9)]:
        c = make(**kw).cuda()
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            g = inputs(frames, grid=c.config.grid, dtype=dtype, seed=int(time.time()), **({"dim": 33} if "dim" in kw else {}))
            g = {k: v.cuda() for k, v in g.items()}
            for q in ("full", "noq"):
                gg = g if q == "full" else {k: v for k, v in g.items() if k not in ("question", "relevance")}
                try:
                    with torch.no_grad(): out = c(**gg, supports=sup); out.check()
                    e = ref(c, gg, supports=sup)
                    row = [relative(out.features, e.features.cuda()), out.budgets == e.budgets, abs(out.loss.item()/e.loss.item()-1)]
                    leaf = gg["x"].clone().requires_grad_(); c.zero_grad()
                    o = c(**(gg | {"x": leaf}), supports=sup); (o.features.float().square().mean() + o.loss).backward()
                    lc = gg["x"].cpu().double().requires_grad_(); w = {n: p.detach().cpu().double().requires_grad_() for n, p in c.named_parameters()}
                    er = compress_reference(c.config, w, **{k: v.cpu() for k, v in (gg | {"x": lc}).items()}, supports=sup); (er.features.square().mean() + er.loss).backward()
                    row += [relative(o.features.float(), e.features.cuda()), relative(leaf.grad.cpu(), lc.grad)]
                    worst = max(((relative(p.grad.cpu(), w[n].grad), n) for n, p in c.named_parameters() if n != "metric.embed.3.bias" and p.grad is not None and w[n].grad is not None and w[n].grad.norm() > 1e-9), default=0)
                    print(kw, frames, sup, str(dtype)[6:], q, ["%.1e" % r if isinstance(r, float) else r for r in row], worst, flush=True)
                except Exception as ex:
                    import traceback; print("FAIL", kw, frames, dtype, q); traceback.print_exc(limit=-3)
def setup(frames, dtype=torch.bfloat16, batch=1):
    cfg = CompressorConfig(); c = Compressor(cfg).cuda()
    x = torch.randn(batch, frames, cfg.patches, cfg.dim, device="cuda").to(dtype)
    return c, dict(x=x, question=torch.randn(batch, cfg.dim, device="cuda", dtype=dtype), relevance=torch.rand(batch, frames, device="cuda"))
def clock(f, n=10):
    for _ in range(3): f()
    ts = []
    for _ in range(n):
        torch.cuda.synchronize(); a = time.perf_counter(); f(); torch.cuda.synchronize(); ts.append(1e3*(time.perf_counter()-a))
    return sorted(ts)[n//2]
if "time" in what:
    for frames, ratio in ((64, 4), (224, 4)):
        c, g = setup(frames)
        @torch.no_grad()
        def run(): return c(**g, ratio=ratio).features
        ms = clock(run); torch.cuda.reset_peak_memory_stats(); base = torch.cuda.memory_allocated(); run(); mem = (torch.cuda.max_memory_allocated()-base)/2**20
        s = torch.cuda.Stream(); 
        with torch.cuda.stream(s), torch.no_grad():
            run(); run(); gr = torch.cuda.CUDAGraph()
            with torch.cuda.graph(gr, stream=s): o = run()
        gms = clock(gr.replay)
        print(frames, ratio, "eager %.2f ms graph %.2f ms extra %.0f MiB" % (ms, gms, mem), flush=True)
if "back" in what:
    for frames in (64, 224):
        c, g = setup(frames); g["x"].requires_grad_()
        def run():
            o = c(**g, ratio=4); (o.features.float().square().mean() + o.loss.sum()).backward(); g["x"].grad = None
        ms = clock(run, 5); torch.cuda.reset_peak_memory_stats(); base = torch.cuda.memory_allocated(); run(); mem = (torch.cuda.max_memory_allocated()-base)/2**20
        print("fwd+bwd", frames, "%.1f ms %.0f MiB" % (ms, mem), flush=True)
if "prof" in what or "profback" in what:
    from torch.profiler import profile, ProfilerActivity
    for frames in ((64, 224) if "prof" in what else (224,)):
        c, g = setup(frames)
        if "profback" in what:
            g["x"].requires_grad_()
            def run():
                o = c(**g, ratio=4); (o.features.float().square().mean() + o.loss.sum()).backward(); g["x"].grad = None
        else:
            @torch.no_grad()
            def run(): return c(**g, ratio=4).features
        for _ in range(3): run()
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
            run(); torch.cuda.synchronize()
        ev = {}
        for e in p.events():
            if str(e.device_type).endswith("CUDA"): 
                k = e.name[:70]; v = ev.setdefault(k, [0, 0, []]); v[0] += e.device_time; v[1] += 1; v[2].append(round(e.device_time))
        tot = sum(v[0] for v in ev.values())
        print("==", frames, "gpu total us", tot, "launches", sum(v[1] for v in ev.values()))
        for k, v in sorted(ev.items(), key=lambda kv: -kv[1][0])[:28]: print("%8.0f us x%d  %s %s" % (v[0], v[1], k, v[2][:6]))

if "warps" in what:
    from torch.profiler import profile, ProfilerActivity
    import aviot.compressor.kernels.transport as T
    for frames in (64, 224):
        c, g = setup(frames)
        @torch.no_grad()
        def run(): return c(**g, ratio=4).features
        for w in ((2, 4) if frames == 64 else (4, 16)):
            T.warps_for = lambda a, b: w
            run(); run()
            with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
                run(); torch.cuda.synchronize()
            v = [round(e.device_time) for e in p.events() if str(e.device_type).endswith("CUDA") and e.name == "_couple"]
            print("couple warps", w, frames, sum(v), v, flush=True)
