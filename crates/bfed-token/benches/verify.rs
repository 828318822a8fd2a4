//! Cost of a token that is presented: what any host can make a gateway do for each request.

use std::hint::black_box;

use bfed::authorise::Right;
use bfed::{BnNum, SessionName};
use bfed_token::{Claims, Presented, SigningKey, Verifier};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

const NOW: u64 = 1_800_000_000;

fn verify(c: &mut Criterion) {
    let network = BnNum::new(7).unwrap();
    let key = SigningKey::generate().unwrap();
    let other = || SigningKey::generate().unwrap().verifying_key().unwrap();
    let sessions = "bfed://9/news*".parse().unwrap();
    let claims = Claims::new(sessions, vec![Right::Join], NOW, NOW + 600);
    let token = key.issue(network, &claims).unwrap();
    let session = SessionName::parse("bfed://9/news/5004").unwrap();
    let mut damaged = token.as_str().to_owned().into_bytes();
    damaged[40] ^= 1;
    let damaged = String::from_utf8(damaged).unwrap();
    let mut group = c.benchmark_group("verify");
    for keys in [1, 4] {
        // The issuer's key is tried last.
        let mut all: Vec<_> = (1..keys).map(|_| other()).collect();
        all.push(key.verifying_key().unwrap());
        let verifier = Verifier::new(network, all);
        for (name, token, is_good) in [("good", token.as_str(), true), ("damaged", &damaged, false)]
        {
            let presented = Presented {
                token,
                right: Right::Join,
                session: &session,
                owner: None,
                from: None,
            };
            assert_eq!(verifier.verify(NOW, &presented).is_ok(), is_good);
            group.bench_function(BenchmarkId::new(name, keys), |b| {
                b.iter(|| {
                    verifier
                        .verify(black_box(NOW), black_box(&presented))
                        .is_ok()
                });
            });
        }
    }
    // What is no token at all is refused before any signature is checked.
    let verifier = Verifier::new(network, vec![key.verifying_key().unwrap()]);
    let presented = Presented {
        token: "v4.public.AAAA",
        right: Right::Join,
        session: &session,
        owner: None,
        from: None,
    };
    group.bench_function("malformed", |b| {
        b.iter(|| {
            verifier
                .verify(black_box(NOW), black_box(&presented))
                .is_err()
        });
    });
    group.finish();
}

criterion_group!(benches, verify);
criterion_main!(benches);
