kubectl -n vsphere-operators-system create secret generic vc-creds \
  --from-literal=GOVMOMI_URL=vc.example.com \
  --from-literal=GOVMOMI_USERNAME=operators@vsphere.local \
  --from-literal=GOVMOMI_PASSWORD=changeme
