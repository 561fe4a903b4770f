package bench.infojosdk;

import io.fabric8.kubernetes.client.CustomResource;
import io.javaoperatorsdk.operator.api.reconciler.UpdateControl;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The status of an object: the facts of the host or VM that it names, and the condition Ready. */
final class Statuses {
  private Statuses() {}

  static <R extends CustomResource<?, Map<String, Object>>> UpdateControl<R> update(
      R info, Map<String, Object> facts) {
    if (facts == null) { // the race has no names that do not exist
      return UpdateControl.noUpdate();
    }
    long generation = info.getMetadata().getGeneration();
    Map<String, Object> status = new LinkedHashMap<>(facts);
    status.put("observedGeneration", generation);
    Map<String, Object> ready = new LinkedHashMap<>();
    ready.put("type", "Ready");
    ready.put("status", "True");
    ready.put("reason", "Reconciled");
    ready.put("message", "");
    ready.put("lastTransitionTime", transitionTime(info.getStatus()));
    ready.put("observedGeneration", generation);
    status.put("conditions", List.of(ready));
    if (isEqual(status, info.getStatus())) {
      return UpdateControl.noUpdate();
    }
    info.setStatus(status);
    return UpdateControl.patchStatus(info);
  }

  /** The stored time if Ready was True before, else now. */
  private static String transitionTime(Map<String, Object> stored) {
    if (stored != null && stored.get("conditions") instanceof List<?> conditions) {
      for (Object condition : conditions) {
        if (condition instanceof Map<?, ?> fields
            && "Ready".equals(fields.get("type"))
            && "True".equals(fields.get("status"))) {
          return (String) fields.get("lastTransitionTime");
        }
      }
    }
    return Instant.now().truncatedTo(ChronoUnit.SECONDS).toString();
  }

  /** Compares texts, because a number may be an Integer on one side and a Long on the other. */
  private static boolean isEqual(Map<String, Object> status, Map<String, Object> stored) {
    if (stored == null || !status.keySet().equals(stored.keySet())) {
      return false;
    }
    return status.entrySet().stream()
        .allMatch(
            field ->
                field.getKey().equals("conditions")
                    ? sameConditions(field.getValue(), stored.get("conditions"))
                    : field.getValue().toString().equals(stored.get(field.getKey()).toString()));
  }

  private static boolean sameConditions(Object conditions, Object stored) {
    Map<?, ?> ready = (Map<?, ?>) ((List<?>) conditions).get(0);
    return stored instanceof List<?> list
        && list.size() == 1
        && list.get(0) instanceof Map<?, ?> fields
        && ready.entrySet().stream()
            .allMatch(
                field ->
                    fields.containsKey(field.getKey())
                        && field
                            .getValue()
                            .toString()
                            .equals(fields.get(field.getKey()).toString()));
  }
}
