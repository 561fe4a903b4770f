"""One thing that is wrong, unread or refused must not keep the answers about all others."""

from __future__ import annotations

from datetime import UTC, datetime

from kubewright.testing import eventually
from vsphere_operators.kinds.gpuinfo import GPUInfo
from vsphere_operators.vcenter.scheduled import Planned

from .nodestage import NodeStage, choosing, chosen, three_nodes


async def test_a_node_whose_facts_cannot_be_made_is_refused_and_all_others_go_on() -> None:
    stage = NodeStage()
    three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with choosing(stage) as controller:
        await chosen(stage, "plain", "node-1")
        # A time that nothing can be added to: no source of ours lets it through, so it stands for any fault of ours.
        stage.vcenter.scheduled.learn([Planned("host-1", datetime.max.replace(tzinfo=UTC), "never")])
        status = await chosen(stage, "plain", "node-2")
        assert status.refused == {"FactsUnreadable": 1, "GPUPresent": 1}
        stage.vcenter.inventory.listeners.insert(0, lambda change: 1 // 0)
        stage.demand(2, 950)
        await eventually(lambda: controller.nodes.ranking.facts["node-2"].load.cpu_demand_mhz == 950)
        stage.vcenter.scheduled.learn([])
        await chosen(stage, "plain", "node-1")
