import sys, torch, torchvision.ops as tv
import detector.layers as d
from measure import time_calls
dev=torch.device('cuda')
def hard(R,N,H,W,g,dt):
    b=torch.rand(R,4,generator=g,dtype=torch.float64)*2-0.5
    b=b*torch.tensor([W,H,W,H])
    k=torch.randint(0,6,(R,),generator=g)
    o=torch.cat([torch.minimum(b[:,:2],b[:,2:]),torch.maximum(b[:,:2],b[:,2:])],1)
    o[k==1]=b[k==1]; o[k==2]=o[k==2].round(); o[k==3,2:]=o[k==3,:2]; o[k==4]*=8; o[k==5]=(o[k==5]*2).round()/2
    return torch.cat([torch.randint(0,N,(R,1),generator=g).double(),o],1).to(dt)
def check():
    g=torch.Generator().manual_seed(0)
    for dt in (torch.float64,torch.float32,torch.bfloat16,torch.float16):
      wide=torch.float64 if dt==torch.float64 else torch.float32
      for C,H,W in ((5,13,17),(40,75,100)):
        x=torch.randn(3,C,H,W,generator=g,dtype=torch.float64).to(dt)
        b=hard(1500,3,H,W,g,wide)
        for osz in ((7,7),(3,5)):
            for f,kw in [('roi_pool',{})]+[('roi_align',dict(sampling_ratio=sr,aligned=al)) for sr in (0,2) for al in (False,True)]:
                for cl in (False,True):
                    xx=(x.contiguous(memory_format=torch.channels_last) if cl else x)
                    xc=xx.detach().requires_grad_(); xg=xx.to(dev).detach().requires_grad_()
                    o=getattr(d,f)(xc,b,osz,0.5,**kw); t=getattr(d,f)(xg,b.to(dev),osz,0.5,**kw)
                    assert t.stride()==o.stride() and t.is_contiguous(memory_format=torch.channels_last) == cl or min(osz)==1
                    u=torch.randn(t.shape,generator=g,dtype=torch.float64).to(dt)
                    go,=torch.autograd.grad(o,xc,u); gt,=torch.autograd.grad(t,xg,u.to(dev))
                    gt2,=torch.autograd.grad(getattr(d,f)(xg,b.to(dev),osz,0.5,**kw),xg,u.to(dev))
                    e=(o-t.cpu()).abs().max().item(); eg=((go-gt.cpu()).abs().max()/go.abs().max()).item()
                    tol={torch.float64:1e-12,torch.float32:1e-5}.get(dt,2e-2)
                    flag='' if e<tol and eg<tol and torch.equal(gt,gt2) else '   <<<<<<'
                    if flag or (osz==(7,7) and C==5 and not cl): print(dt,C,osz,f,kw,cl,e,eg,flag)
def uniform(R,N,H,W,g):
    p=torch.rand(R,2,2,generator=g)*torch.tensor([W,H]); lo=p.amin(1); hi=p.amax(1)
    return torch.cat([torch.randint(0,N,(R,1),generator=g).float().sort(0)[0],lo,hi],1)
def bench(N,C,H,W,R,dts,cls=(False,True)):
    g=torch.Generator().manual_seed(1)
    bs=[(uniform(R,N,H,W,g)*torch.tensor([1,8,8,8,8.])).to(dev) for _ in range(3)]
    for f,kw in (('roi_pool',{}),('roi_align',dict(sampling_ratio=2,aligned=True))):
      for dt in dts:
        for cl in cls:
            x=torch.randn(N,C,H,W,device=dev,dtype=dt).relu()
            if cl: x=x.contiguous(memory_format=torch.channels_last)
            x.requires_grad_()
            res=[]
            for lib in (d,tv):
                fn=getattr(lib,f)
                if lib is tv and dt==torch.bfloat16: res+=[0,0]; continue
                bb=[b.to(dt) if lib is tv else b for b in bs]
                with torch.no_grad(): res.append(time_calls([lambda b=b: fn(x,b,7,0.125,**kw) for b in bb],dev,20))
                outs=[fn(x,b,7,0.125,**kw) for b in bb]; u=torch.randn_like(outs[0])
                res.append(time_calls([lambda o=o: torch.autograd.grad(o,x,u,retain_graph=True) for o in outs],dev,20))
                del outs
            print(f"{f} {N}x{C}x{H}x{W} R={R} {str(dt)[6:]} {'NHWC' if cl else 'NCHW'} ours {res[0]:.3f} {res[1]:.3f} tv {res[2]:.3f} {res[3]:.3f}",flush=True)
if __name__=='__main__':
    check()
    bench(1,512,75,100,2000,(torch.float32,torch.bfloat16))
    bench(1,512,112,150,4000,(torch.float32,torch.bfloat16))
