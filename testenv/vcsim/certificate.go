package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"
)

// certificate loads the configured key pair, or generates a self-signed certificate and writes it
// to out for clients to trust.
func certificate(s *Settings, out string) (tls.Certificate, error) {
	if s.Certificate != "" {
		return tls.LoadX509KeyPair(s.Certificate, s.Key)
	}
	pair, err := selfSigned(s.TLSNames, s.TLSExpired)
	if err != nil {
		return pair, err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	return pair, os.WriteFile(out, block, 0o644)
}

func selfSigned(names []string, expired bool) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return tls.Certificate{}, err
	}
	template := template(names, expired)
	template.SerialNumber = serial
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(raw)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}, err
}

// template returns a certificate that is its own CA, so that clients need to trust one file only.
func template(names []string, expired bool) *x509.Certificate {
	notBefore, notAfter := time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
	if expired {
		notBefore, notAfter = notBefore.AddDate(-1, 0, 0), notBefore
	}
	certificate := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "vcsim"},
		NotBefore: notBefore, NotAfter: notAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true,
	}
	if len(names) == 0 {
		names = []string{"localhost", "127.0.0.1", "::1"}
	}
	for _, name := range names {
		if address := net.ParseIP(name); address != nil {
			certificate.IPAddresses = append(certificate.IPAddresses, address)
		} else {
			certificate.DNSNames = append(certificate.DNSNames, name)
		}
	}
	return certificate
}
