//! What tokens of well-known providers look like.
//!
//! Each shape is narrow: a prefix that nothing else has, an alphabet, a length. Hashes, UUIDs, base64 of images and
//! source code must pass untouched, because what an agent reads it may write back.

/// A shape of token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// What is shown in its place.
    pub(super) name: &'static str,
    /// What each such token contains, so that text without it need not be searched; found in any case.
    pub(super) marks: &'static [&'static str],
    /// The first group, if there is one, is what is masked.
    pub(super) expression: &'static str,
}

const fn shape(name: &'static str, marks: &'static [&'static str], expression: &'static str) -> Shape {
    Shape { name, marks, expression }
}

#[rustfmt::skip]
pub(super) const SHAPES: &[Shape] = &[
    shape("openai", &["sk-"], r"\bsk-(?:proj-|svcacct-|admin-|None-)?[A-Za-z0-9_-]{20,200}\b"),
    shape("anthropic", &["sk-ant-"], r"\bsk-ant-[A-Za-z0-9_-]{20,200}"),
    shape("openrouter", &["sk-or-"], r"\bsk-or-[A-Za-z0-9_-]{20,200}"),
    shape("github", &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], r"\bgh[pousr]_[A-Za-z0-9]{30,255}\b"),
    shape("github", &["github_pat_"], r"\bgithub_pat_[A-Za-z0-9_]{22,255}\b"),
    shape("gitlab", &["glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glsoat-", "glffct-"], r"\bgl(?:pat|dt|rt|cbt|ptt|soat|ffct)-[A-Za-z0-9_.-]{20,300}"),
    shape("slack", &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xoxo-", "xoxe."], r"\bxox[baprseo][.-][A-Za-z0-9.-]{10,250}"),
    shape("slack", &["xapp-"], r"\bxapp-[0-9]-[A-Za-z0-9-]{20,200}"),
    shape("slack", &["hooks.slack.com"], r"hooks\.slack\.com/services/([A-Za-z0-9/]{20,100})"),
    shape("google", &["aiza"], r"\bAIza[A-Za-z0-9_-]{35}"),
    shape("google", &["ya29."], r"\bya29\.[A-Za-z0-9_-]{20,500}"),
    shape("google", &["gocspx-"], r"\bGOCSPX-[A-Za-z0-9_-]{20,60}"),
    shape("aws", &["akia", "asia", "abia", "acca"], r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"),
    shape("aws", &["aws_secret", "secretaccesskey", "aws_session", "sessiontoken"], r#"(?i)(?:aws_secret_access_key|aws_session_token|SecretAccessKey|SessionToken)["']?\s{0,4}[:=]\s{0,4}["']?([A-Za-z0-9/+=]{40,1000})"#),
    shape("stripe", &["sk_live_", "sk_test_", "rk_live_", "rk_test_"], r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,250}\b"),
    shape("stripe", &["whsec_"], r"\bwhsec_[A-Za-z0-9+/=]{24,100}"),
    shape("sendgrid", &["sg."], r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}"),
    shape("huggingface", &["hf_", "api_org_"], r"\b(?:hf|api_org)_[A-Za-z]{30,60}\b"),
    shape("npm", &["npm_"], r"\bnpm_[A-Za-z0-9]{36}\b"),
    shape("npm", &["_authtoken"], r"_authToken\s{0,2}=\s{0,2}([A-Za-z0-9_./+=-]{16,300})"),
    shape("pypi", &["pypi-"], r"\bpypi-AgEI[A-Za-z0-9_-]{50,500}"),
    shape("groq", &["gsk_"], r"\bgsk_[A-Za-z0-9]{40,80}\b"),
    shape("xai", &["xai-"], r"\bxai-[A-Za-z0-9]{60,100}\b"),
    shape("perplexity", &["pplx-"], r"\bpplx-[A-Za-z0-9]{40,80}\b"),
    shape("replicate", &["r8_"], r"\br8_[A-Za-z0-9]{37}\b"),
    shape("fireworks", &["fw_"], r"\bfw_[A-Za-z0-9]{22,40}\b"),
    shape("nvidia", &["nvapi-"], r"\bnvapi-[A-Za-z0-9_-]{50,90}"),
    shape("cerebras", &["csk-"], r"\bcsk-[a-z0-9]{40,60}\b"),
    shape("tavily", &["tvly-"], r"\btvly-[A-Za-z0-9_-]{20,60}"),
    shape("firecrawl", &["fc-"], r"\bfc-[0-9a-f]{32}\b"),
    shape("elevenlabs", &["sk_"], r"\bsk_[0-9a-f]{48}\b"),
    shape("modal", &["ak-", "as-"], r"\b(?:ak|as)-[A-Za-z0-9]{22}\b"),
    shape("daytona", &["dtn_"], r"\bdtn_[0-9a-f]{40,80}\b"),
    shape("digitalocean", &["dop_v1_", "doo_v1_", "dor_v1_"], r"\bdo[opr]_v1_[0-9a-f]{64}\b"),
    shape("cloudflare", &["v1.0-"], r"\bv1\.0-[0-9a-f]{24}-[0-9a-f]{100,200}\b"),
    shape("heroku", &["hrku-"], r"\bHRKU-[A-Za-z0-9_-]{30,80}"),
    shape("fly", &["fm1_", "fm2_", "flyv1"], r"\bfm[12]_[A-Za-z0-9+/=_-]{50,1000}"),
    shape("vercel", &["vcp_", "vca_", "vci_"], r"\bvc[pai]_[A-Za-z0-9]{20,80}\b"),
    shape("netlify", &["nfp_"], r"\bnfp_[A-Za-z0-9]{36}\b"),
    shape("supabase", &["sbp_", "sb_secret_"], r"\b(?:sbp_[0-9a-f]{40}|sb_secret_[A-Za-z0-9_-]{20,80})\b"),
    shape("planetscale", &["pscale_"], r"\bpscale_(?:pw|tkn|oauth)_[A-Za-z0-9_.-]{30,80}"),
    shape("databricks", &["dapi"], r"\bdapi[0-9a-f]{32}(?:-[0-9])?\b"),
    shape("shopify", &["shpat_", "shpss_", "shpca_", "shppa_"], r"\bshp(?:at|ss|ca|pa)_[0-9a-fA-F]{32}\b"),
    shape("square", &["sq0atp-", "sq0csp-", "eaaa"], r"\b(?:sq0(?:atp|csp)-[A-Za-z0-9_-]{22,60}|EAAA[A-Za-z0-9_-]{60})\b"),
    shape("twilio", &["sk"], r"\bSK[0-9a-f]{32}\b"),
    shape("mailgun", &["key-"], r"\bkey-[0-9a-f]{32}\b"),
    shape("mailchimp", &["-us"], r"\b[0-9a-f]{32}-us[0-9]{1,2}\b"),
    shape("telegram", &[":aa"], r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"),
    shape("discord", &["discord", "m", "n", "o"], r"\b[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}"),
    shape("discord", &["api/webhooks/"], r"api/webhooks/[0-9]{15,21}/([A-Za-z0-9_-]{60,80})"),
    shape("linear", &["lin_api_"], r"\blin_api_[A-Za-z0-9]{40}\b"),
    shape("notion", &["ntn_", "secret_"], r"\b(?:ntn_[A-Za-z0-9]{40,60}|secret_[A-Za-z0-9]{43})\b"),
    shape("airtable", &["pat"], r"\bpat[A-Za-z0-9]{14}\.[0-9a-f]{64}\b"),
    shape("atlassian", &["atatt3"], r"\bATATT3[A-Za-z0-9_=-]{100,300}"),
    shape("grafana", &["glc_", "glsa_"], r"\b(?:glc_[A-Za-z0-9+/=]{32,400}|glsa_[A-Za-z0-9]{32}_[0-9a-f]{8})"),
    shape("newrelic", &["nrak-", "nraa-"], r"\bNR(?:AK|AA)-[A-Za-z0-9]{27,42}\b"),
    shape("sentry", &["sntrys_", "sntryu_"], r"\bsntry[su]_[A-Za-z0-9+/=_-]{40,400}"),
    shape("postman", &["pmak-"], r"\bPMAK-[0-9a-f]{24}-[0-9a-f]{34}\b"),
    shape("doppler", &["dp.pt.", "dp.st."], r"\bdp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._-]{40,80}"),
    shape("vault", &["hvs.", "hvb."], r"\bhv[sb]\.[A-Za-z0-9_-]{24,300}"),
    shape("terraform", &[".atlasv1."], r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,70}"),
    shape("pulumi", &["pul-"], r"\bpul-[0-9a-f]{40}\b"),
    shape("rubygems", &["rubygems_"], r"\brubygems_[0-9a-f]{48}\b"),
    shape("crates.io", &["cio"], r"\bcio[A-Za-z0-9]{32}\b"),
    shape("docker", &["dckr_pat_", "dckr_oat_"], r"\bdckr_[po]at_[A-Za-z0-9_-]{20,60}"),
    shape("tailscale", &["tskey-"], r"\btskey-[a-z]+-[A-Za-z0-9_-]{10,80}"),
    shape("age", &["age-secret-key-"], r"\bAGE-SECRET-KEY-1[A-Z0-9]{50,70}\b"),
    shape("jwt", &["eyj"], r"\beyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,1000}"),
    shape("authorization", &["authorization"], r#"(?i)\bauthorization["']?\s{0,2}[:=]\s{0,2}["']?(?:bearer|basic|token|bot)\s{1,2}([A-Za-z0-9._~+/=-]{12,4000})"#),
    shape("password", &["://"], r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/@'\x22<>$\{«»]{0,100}:([^\s:/@'\x22<>$\{\*«»]{3,200})@"),
];
