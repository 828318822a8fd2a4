//! TLS of the client of etcd.

use etcd_client::{Certificate, Error, Identity, TlsOptions};

use crate::config::EtcdTls;

/// Reads `etcd.key-file` for etcd's client.
pub(super) fn options(tls: &EtcdTls) -> Result<TlsOptions, Error> {
    let pem = std::fs::read_to_string(&tls.key_file)?;
    let (mut certificates, mut keys) = (Vec::new(), String::new());
    let mut block = String::new();
    for line in pem.lines() {
        if line.starts_with("-----BEGIN ") {
            block.clear();
        }
        block.push_str(line);
        block.push('\n');
        if line.starts_with("-----END ") {
            match line.contains("CERTIFICATE") {
                true => certificates.push(std::mem::take(&mut block)),
                false => keys.push_str(&std::mem::take(&mut block)),
            }
        }
    }
    let authority = certificates.pop().unwrap_or_default();
    let options = TlsOptions::new()
        .ca_certificate(Certificate::from_pem(authority))
        .identity(Identity::from_pem(certificates.concat(), keys));
    Ok(match &tls.name {
        Some(name) => options.domain_name(name),
        None => options,
    })
}
