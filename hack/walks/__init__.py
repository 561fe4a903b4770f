"""Count the source files that one event enters, by tracing a real manager.

    python -m hack.walks                    # all walks, under two minutes
    python -m hack.walks host-edit clone      # only these
    python -m hack.walks --json --root /path/of/a/worktree

It starts etcd, kube-apiserver and vcsim (the simulated vCenter) from .testenv/bin, and the
`manager` command of pyproject.toml in a child process with a profile hook. The walks:

    host-edit     spec.hostname of a HostInfo is patched -> its status patch is answered
    host-change   an ESXi host enters or leaves maintenance mode -> the status patch of its HostInfo
                  is answered
    scale-up      spec.replicas of a VmGroup is patched from 1 to 2 -> the status patch with phase
                  RUNNING and two ready replicas is answered
    gpu           a GPUInfo is created -> its status patch is answered
    clone         no walk: how deep in the code the CloneVM_Task call of scale-up is sent

What is a file?  A file below src/vsphere_operators or packages/kubewright/src/kubewright, except
    kubewright/testing. It is counted when one of its functions is entered. Importing it does not
    count, so a package's __init__ counts only when a function in it is called.

What is entered?  The unit of the trace is a step: one run of one callback of the event loop, that
    is a task from one await to the next, a timer, or the arrival of data; or one call of a
    function of ours in a thread. A step has a label (the coroutine of its task, else its first
    function of ours) and the functions that it enters. A coroutine that continues after an await
    is entered again, as are the coroutines that await it.

What is the walk?  All steps that begin between the trigger and the sending of the status patch,
    and after that the steps of the task that sent it, up to the one that reads the answer; except
    those of the background. While the answer is awaited, other tasks are left out: whether the
    watch brings our own status patch before the answer differs from run to run. Each walk runs
    REPEATS times. A file counts when it is entered in more than half of them; the others are
    listed apart.

What is the background?  Before the first trigger the manager is left alone for IDLE_SECONDS, with
    a HostInfo and a VmGroup in place. That is longer than one WaitForUpdatesEx of an idle
    inventory (15 s). A later step counts as background when its label occurred in that time and
    it enters no function that was not entered under this label. So a poll of credentials or a
    renewal of the lease is left out. The watch of the inventory is left out when nothing changed,
    and counted when it brings a change. If a controller reconciles in that time, the measurement
    fails.

What else is in the cluster?  A HostInfo of a standalone host, on which no VM runs, and a VmGroup,
    so that no walk triggers the object of another. The Nodes are created only before the walk of
    GPUInfo: where there are Nodes, every VM that a VmGroup makes is also compared with them.

How does the child know the answer?  It logs every request that aiohttp sends, and when the
    headers of the answer have come. The answer to a status patch is one packet, so the step that
    receives the headers also reads and decodes the body.

How deep is the clone?  When the request with the CloneVM_Task call is sent, the Python stack
    holds the whole chain of awaits. Counted are the frames of ours below
    VmGroupController.reconcile, without that one. `frames` ends with the function that names the
    method of the vSphere API (CloneVM_Task or Clone). `frames_to_wire` goes on through the SOAP
    and HTTP transport to the last frame of ours, the one that calls aiohttp. `files` and
    `files_to_wire` are the distinct files of those frames, without the file of reconcile unless a
    deeper frame is in it as well.
"""
