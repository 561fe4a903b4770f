package bench.infojosdk;

import io.javaoperatorsdk.operator.api.reconciler.Context;
import io.javaoperatorsdk.operator.api.reconciler.ControllerConfiguration;
import io.javaoperatorsdk.operator.api.reconciler.Reconciler;
import io.javaoperatorsdk.operator.api.reconciler.UpdateControl;
import java.util.Map;

@ControllerConfiguration
public class VMInfoReconciler implements Reconciler<VMInfo> {
  private final Map<String, Map<String, Object>> facts;

  public VMInfoReconciler(Map<String, Map<String, Object>> facts) {
    this.facts = facts;
  }

  @Override
  public UpdateControl<VMInfo> reconcile(VMInfo info, Context<VMInfo> context) {
    return Statuses.update(info, facts.get(info.getSpec().getNodename()));
  }
}
