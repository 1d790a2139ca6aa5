use super::*;

fn masked(text: &str) -> String {
    Redactor::default().redact(text).into_owned()
}

#[test]
fn expressions_compile() {
    assert!(MARKS.is_some());
    for (at, shape) in SHAPES.iter().enumerate() {
        let lower = shape.expression.to_lowercase().replace('\\', "");
        assert!(!shape.marks.is_empty() && !lower.is_empty() && expression(at).is_some(), "{}", shape.name);
        assert!(shape.marks.iter().all(|mark| mark.to_lowercase() == *mark), "{}", shape.name);
    }
}

/// Put together here, so that no scanner takes this file for a leak.
fn tokens() -> Vec<(&'static str, String)> {
    let alnum = "a1B2c3D4e5F6g7H8i9J0";
    let hex = "0123456789abcdef";
    vec![
        ("openai", format!("sk-proj-{}", alnum.repeat(3))),
        ("openai", format!("sk-{}", alnum.repeat(2))),
        ("github", format!("ghp_{}", &alnum.repeat(2)[..36])),
        ("github", format!("github_pat_{}_{}", &alnum.repeat(2)[..22], &alnum.repeat(3)[..59])),
        ("gitlab", format!("glpat-{alnum}")),
        ("slack", format!("xoxb-1234567890-1234567890-{alnum}")),
        ("google", format!("AIza{}", &alnum.repeat(2)[..35])),
        ("aws", format!("AKIA{}", "ABCDEFGHIJ234567")),
        ("stripe", format!("sk_live_{alnum}")),
        ("sendgrid", format!("SG.{}.{}", &alnum.repeat(2)[..22], &alnum.repeat(3)[..43])),
        ("huggingface", format!("hf_{}", "abcdefghijklmnopqrstuvwxyzABCDEFGH")),
        ("npm", format!("npm_{}", &alnum.repeat(2)[..36])),
        ("pypi", format!("pypi-AgEI{}", alnum.repeat(4))),
        ("groq", format!("gsk_{}", &alnum.repeat(3)[..52])),
        ("xai", format!("xai-{}", alnum.repeat(4))),
        ("digitalocean", format!("dop_v1_{}", hex.repeat(4))),
        ("databricks", format!("dapi{}", hex.repeat(2))),
        ("telegram", format!("123456789:AA{}", &alnum.repeat(2)[..33])),
        ("linear", format!("lin_api_{}", alnum.repeat(2))),
        ("jwt", format!("eyJ{alnum}.eyJ{alnum}.{alnum}")),
        ("tailscale", format!("tskey-auth-{alnum}")),
        ("vault", format!("hvs.{}", alnum.repeat(2))),
        ("daytona", format!("dtn_{}", hex.repeat(4))),
        ("modal", format!("ak-{}", &alnum.repeat(2)[..22])),
    ]
}

#[test]
fn tokens_are_masked() {
    for (name, token) in tokens() {
        for text in
            [token.clone(), format!("TOKEN={token}\n"), format!("\"{token}\","), format!("a {token} b")]
        {
            let result = masked(&text);
            assert!(!result.contains(&token), "{name}: {result}");
            assert!(result.contains("«redacted:"), "{name}: {result}");
            assert_eq!(masked(&result), result, "{name}");
        }
    }
}

#[test]
fn passwords_in_addresses_and_headers() {
    assert_eq!(masked("postgres://app:hunter2x@db:5432/x"), "postgres://app:«redacted:password»@db:5432/x");
    assert_eq!(
        masked("Authorization: Bearer abcdef0123456789"),
        "Authorization: Bearer «redacted:authorization»"
    );
    let key = format!("-----BEGIN {} KEY-----\nMIIabc\nxyz\n-----END {0} KEY-----\n", "RSA PRIVATE");
    let result = masked(&key);
    assert!(!result.contains("MIIabc") && result.contains("-----END RSA PRIVATE KEY-----"), "{result}");
    assert_eq!(masked(&result), result);
}

#[test]
fn ordinary_text_is_left_alone() {
    for text in [
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  file",
        "550e8400-e29b-41d4-a716-446655440000",
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB",
        "sha512-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ+/abcdefghijklmnopqrstuvw==",
        "https://example.com/path?query=1&sk=2",
        "http://localhost:8080/a@b",
        "let sk_test = 5; fn npm_install() {}",
        "the task-force asked for risk-management-and-desk-research",
        "hf_transfer hf_hub_download npm_config_registry glpat- sk-learn sk-",
        "scikit-learn==1.4.0 --hash=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "git@github.com:user/repo.git",
        "ssh://git@github.com:22/user/repo.git",
        "password = os.environ['PASSWORD']",
        "postgres://user:$PASSWORD@host/db and redis://:${PW}@host",
        "-----BEGIN CERTIFICATE-----\nMIIabc\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMIIabc\n-----END PUBLIC KEY-----",
        "arn:aws:iam::123456789012:role/x",
        "Authorization: Bearer $TOKEN",
        "version 1.2.3-us1 at 12:34:56:AAbb",
        "const KEY_PREFIX = 'ghp_';",
        "css: .mask-image-linear-gradient-to-bottom-right { }",
    ] {
        assert_eq!(masked(text), text);
    }
}

#[test]
fn known_values() {
    let redactor = Redactor::new([
        ("DB_PASSWORD", "correct horse battery"),
        ("API", "Zx9-longer-secret"),
        ("SHORT", "abc"),
        ("HOST", "localhost"),
        ("NODE_ENV", "production"),
        ("PORT", "8080"),
        ("HOME", "/home/dev/some/path"),
        ("NAME", "alexander"),
    ]);
    let text = "correct horse battery staple; Zx9-longer-secret; abc localhost production 8080 /home/dev/some/path alexander";
    assert_eq!(
        redactor.redact(text),
        "«redacted:DB_PASSWORD» staple; «redacted:API»; abc localhost production 8080 /home/dev/some/path alexander"
    );
    assert!(matches!(redactor.redact("nothing in here"), Cow::Borrowed(_)));
}

#[test]
fn a_stream_gives_the_same_whatever_its_cuts() {
    let redactor = Redactor::new([("DB_PASSWORD", "correct horse battery"), ("API", "Zx9-longer-secret")]);
    let mut text = String::new();
    for (_, token) in tokens() {
        text.push_str("line with ");
        text.push_str(&token);
        text.push_str(
            " and correct horse battery, Zx9-longer-secret\nAuthorization: Bearer abcdef0123456789\n",
        );
    }
    text.push_str("-----BEGIN PRIVATE KEY-----\nMIIabc\nxyz é\n-----END PRIVATE KEY-----\nrest é ü\n");
    let whole = redactor.redact(&text).into_owned();
    for size in [1, 2, 3, 7, 16, 61, 500, 4096] {
        let mut stream = redactor.stream();
        let mut out = String::new();
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(size) {
            out.push_str(&stream.push(&piece.iter().collect::<String>()));
        }
        out.push_str(&stream.finish());
        assert_eq!(out, whole, "pieces of {size}");
    }
}

#[test]
fn a_stream_without_spaces_stays_bounded() {
    let redactor = Redactor::default();
    let mut stream = redactor.stream();
    let mut total = 0;
    for _ in 0..200 {
        total += stream.push(&"x".repeat(4096)).len();
        assert!(stream.pending() <= 3 * MAX_SECRET);
    }
    assert_eq!(total + stream.finish().len(), 200 * 4096);
}
