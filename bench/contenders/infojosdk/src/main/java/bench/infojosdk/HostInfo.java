package bench.infojosdk;

import io.fabric8.kubernetes.api.model.Namespaced;
import io.fabric8.kubernetes.client.CustomResource;
import io.fabric8.kubernetes.model.annotation.Group;
import io.fabric8.kubernetes.model.annotation.Kind;
import io.fabric8.kubernetes.model.annotation.Plural;
import io.fabric8.kubernetes.model.annotation.Version;
import java.util.Map;

@Group("topology.corinternal.com")
@Version("v1")
@Kind("HostInfo")
@Plural("hostinfoes")
public class HostInfo extends CustomResource<HostInfo.Spec, Map<String, Object>>
    implements Namespaced {
  public static class Spec {
    private String hostname;

    public String getHostname() {
      return hostname;
    }

    public void setHostname(String hostname) {
      this.hostname = hostname;
    }
  }
}
