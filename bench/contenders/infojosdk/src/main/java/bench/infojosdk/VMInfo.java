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
@Kind("VMInfo")
@Plural("vminfoes")
public class VMInfo extends CustomResource<VMInfo.Spec, Map<String, Object>> implements Namespaced {
  public static class Spec {
    private String nodename;

    public String getNodename() {
      return nodename;
    }

    public void setNodename(String nodename) {
      this.nodename = nodename;
    }
  }
}
