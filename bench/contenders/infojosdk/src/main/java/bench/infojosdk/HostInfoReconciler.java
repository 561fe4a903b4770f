package bench.infojosdk;

import io.javaoperatorsdk.operator.api.reconciler.Context;
import io.javaoperatorsdk.operator.api.reconciler.ControllerConfiguration;
import io.javaoperatorsdk.operator.api.reconciler.Reconciler;
import io.javaoperatorsdk.operator.api.reconciler.UpdateControl;
import java.util.Map;

@ControllerConfiguration
public class HostInfoReconciler implements Reconciler<HostInfo> {
  private final Map<String, Map<String, Object>> facts;

  public HostInfoReconciler(Map<String, Map<String, Object>> facts) {
    this.facts = facts;
  }

  @Override
  public UpdateControl<HostInfo> reconcile(HostInfo info, Context<HostInfo> context) {
    return Statuses.update(info, facts.get(info.getSpec().getHostname()));
  }
}
