import torch, tmp_job as j, detector.layers as d
from torch.profiler import profile, ProfilerActivity
g=torch.Generator().manual_seed(1); b=(j.uniform(2000,1,75,100,g)*torch.tensor([1,8,8,8,8.])).cuda()
x=torch.randn(1,512,75,100,device='cuda').relu().requires_grad_()
def run():
    for f,kw in (('roi_pool',{}),('roi_align',dict(sampling_ratio=2,aligned=True))):
        o=getattr(d,f)(x,b,7,0.125,**kw); torch.autograd.grad(o,x,torch.ones_like(o))
run(); torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CUDA]) as p:
    for _ in range(5): run()
    torch.cuda.synchronize()
for e in p.key_averages(): print(f"{e.device_time_total/e.count:9.1f} us x{e.count} {e.key[:110]}")
