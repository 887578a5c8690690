"""What users write, for mypy: what is right, and what is not."""

import asyncio

import et


@et.kernel("")
def scale(x: et.InOut[et.f32], factor: et.f32, n: et.u64) -> None: ...


def right(device: et.Device) -> float:
    x = device.array(memoryview(b"1234").cast("f"))
    event: et.Event = scale[2, device.stream()](x, 2.0, x.size)
    event.wait(timeout=1)
    scale(x, n=4, factor=x[0].size).wait()
    with et.open("sim:", spin=1e-3, byte_copies=False) as other:
        print(other.locator)
    stream = device.stream(priority="high")
    result = device.host_empty(4)
    staged: et.Event = stream.launch_staged(
        scale.on(device), x, 2.0, x.size, into=result, inputs=[(b"1234", x)], outputs=[x, (x, 8)])
    stream.copy_to_peer(x, x.toreadonly(), peer=staged_by(device)).wait()
    names: list[str] = [builtin.name for builtin in device.builtins().list()]
    assert names and device.load_module("k.elf").function("f").signature is not None
    print([info.holder.pid for info in et.devices() if info.holder], device.identity.backend)
    try:
        staged.wait()
    except et.ArgumentsMismatchError as mismatch:
        print(mismatch.parameter)
    event.add_done_callback(lambda ended: print(ended.done))
    event.add_state_callback("ready", lambda ended, state: print(ended.id, state.upper()))
    with stream.map(x, "read", timeout=1) as mapping:
        print(mapping[1:].sum(), len(mapping), mapping.path.upper())
    kernel = device.load(et.compile("", options=["-O2"]), signature=[et.In[et.f32], et.u64])
    kernel[...](x, et.u64(5)).wait()
    graph = et.Graph()
    task: int = graph.add(kernel, x, 5, name="t", after=[graph.host(lambda: None, reads=[x])])
    run: et.Run = graph.launch(trace=True)
    run.save("run.json", "phases", profile=device.profile())
    print(run.to_json(detail="tasks").upper())
    graph.run(timeout=task).wait()
    try:
        kernel.launch(x, 5, shires=[0, 1])
    except et.KernelError as error:
        print(error.hart, error.harts[0].registers, error.line)
        found = error.harts[0].finding
        if found is not None and found.other is not None:
            print(found.kind.upper(), found.address + found.nbytes, found.other.hart + 1)
    with device.profile() as profile:
        first = profile.records[0]
    try:
        recovery: et.Recovery = device.recover("function", timeout=1)
        print(recovery.steps[0].remedy.upper(), recovery.ill and recovery.ill.device)
    except et.RecoveryError as stays:
        print(stays.steps[0].seconds, stays.lost.memory)
    event_of_card = device.management(timeout=1).event()
    temperature: int = device.management().temperatures().minion_average_c
    if event_of_card is not None:
        return event_of_card.seen + temperature
    return first.completed - first.queued


def staged_by(device: et.Device) -> et.Stream:
    return device.default_stream


async def awaited(device: et.Device) -> None:
    await asyncio.gather(*[wait(device.stream().record())])


async def wait(event: et.Event) -> None:
    await event


def wrong(device: et.Device) -> None:
    device.array([1, 2])  # type: ignore[arg-type]
    et.open(byte_copy=True)  # type: ignore[call-arg]
    device.empty(3)["x"]  # type: ignore[index]
    device.empty(3).wait()  # type: ignore[attr-defined]
    et.compile(b"source")  # type: ignore[arg-type]
    device.default_stream.synchronize("soon")  # type: ignore[arg-type]
    device.stream().wait_event(device)  # type: ignore[arg-type]
    device.management().set_tdp_watts("25")  # type: ignore[arg-type]
    et.Graph().run().save(b"run.json", 2)  # type: ignore[arg-type]
    et.Graph().edge("a", "b")  # type: ignore[arg-type]
    device.stream(priority=1)  # type: ignore[arg-type]
    device.default_stream.copy_to_peer(b"1234", b"1234")  # type: ignore[arg-type]
