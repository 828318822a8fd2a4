//! A file name from the network, made harmless.

/// The longest name kept, in bytes: what Linux file systems take.
pub const MAX_LEN: usize = 255;

/// The name under which a file that a sender calls `name` is stored in a folder.
///
/// Only the last component of a path is kept; control characters, characters that change the
/// direction of text, path separators and invalid UTF-8 become `_`; so does a leading dot, so that
/// no user's `.profile` is replaced; a name of more than 255 bytes is cut before its extension.
/// `None` when nothing usable remains (`""`, `"."`, `".."`, `"/"`).
pub fn sanitise(name: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(name);
    let last = text.trim_end_matches('/').rsplit('/').next().unwrap_or("");
    if last.is_empty() || last == "." || last == ".." {
        return None;
    }
    let mut clean: String = last
        .chars()
        .map(|c| if harmless(c) { c } else { '_' })
        .collect();
    if clean.starts_with('.') {
        clean.replace_range(..1, "_");
    }
    Some(cut(clean))
}

/// Whether `name` can be the name of a file as it stands: [`sanitise`] would not change it.
#[must_use]
pub fn is_plain(name: &str) -> bool {
    sanitise(name.as_bytes()).as_deref() == Some(name)
}

fn harmless(c: char) -> bool {
    let steers_text = matches!(c,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fffd}');
    !c.is_control() && c != '\\' && !steers_text
}

/// Cuts to [`MAX_LEN`] bytes at a character boundary and keeps an extension of up to 16 bytes.
fn cut(name: String) -> String {
    if name.len() <= MAX_LEN {
        return name;
    }
    let extension = match name.rfind('.') {
        Some(dot) if dot > 0 && name.len() - dot <= 16 => &name[dot..],
        _ => "",
    };
    let mut end = MAX_LEN - extension.len();
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{extension}", &name[..end])
}
