package bench.infojosdk;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.javaoperatorsdk.operator.Operator;
import java.io.File;
import java.io.IOException;
import java.util.Map;

/**
 * An operator on the Java Operator SDK for {@code python -m bench.product}: HostInfo and VMInfo
 * with the statuses of vsphere-operators.
 *
 * <p>KUBECONFIG and FACTS are environment variables. FACTS names a JSON file with the facts of all
 * hosts and VMs by name, so this operator needs no session with a vCenter, and does not follow it.
 *
 * <p>It has 64 workers, and sends one patch for each status, without server-side apply. Its own
 * status writes do not reconcile an object again: JOSDK compares generations by default.
 */
public final class Main {
  private static final int WORKERS = 64;

  private Main() {}

  public static void main(String[] arguments) throws IOException {
    System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
    Map<String, Map<String, Map<String, Object>>> facts =
        new ObjectMapper().readValue(new File(System.getenv("FACTS")), new TypeReference<>() {});
    Operator operator =
        new Operator(
            overrider ->
                overrider
                    .withConcurrentReconciliationThreads(WORKERS)
                    .withUseSSAToPatchPrimaryResource(false));
    operator.register(new HostInfoReconciler(facts.get("HostInfo")));
    operator.register(new VMInfoReconciler(facts.get("VMInfo")));
    operator.installShutdownHook(java.time.Duration.ofSeconds(1));
    operator.start();
  }
}
