//! The colours of the page's boxes, for pictures of the same functions.
//!
//! The rule is that of the page (`crates/desk/web/page/script/colour.js`, in the light theme): a
//! module of the program has a hue, the functions of libraries are grey, and functions of one
//! module differ a little in lightness.

use std::collections::HashMap;

use heapprof_totals::module::FunctionModule;

/// The hues of modules, in the order in which they are taken.
const HUES: [u16; 12] = [255, 150, 45, 320, 205, 100, 5, 290, 175, 70, 230, 125];
/// How many hues lie between one that is taken and the one that is tried next.
const HUE_STEP: usize = 5;
/// How much the own values of a module count beside those of the functions that it calls.
const OWN_WEIGHT: f64 = 9.0;
/// The colour of the box of the whole profile.
pub(crate) const ROOT_COLOUR: [u8; 3] = [0xe3, 0xe7, 0xec];

/// The hues of the modules of a tree.
pub(crate) struct PageColours {
    /// The hue of each module that is not a library, by its name.
    hues: HashMap<String, u16>,
}

/// A node of a tree, in pre-order.
#[derive(Clone, Copy)]
pub(crate) struct WeighedNode {
    /// The index of the node's place.
    pub(crate) place: usize,
    pub(crate) depth: usize,
    /// The node's value without its children.
    pub(crate) own: i64,
    /// The node's value with its children.
    pub(crate) total: i64,
}

impl PageColours {
    /// Gives hues to the modules of a tree, the largest first. `modules` has the module of each
    /// place. `is_reversed` says whether the tree begins with the leaves.
    pub(crate) fn new(
        nodes: impl Iterator<Item = WeighedNode>,
        modules: &[FunctionModule],
        is_reversed: bool,
    ) -> Self {
        let mut weights: Vec<(&FunctionModule, f64)> = Vec::new();
        let mut known: HashMap<(&str, bool), usize> = HashMap::new();
        for (place, weight) in weights_of_places(nodes, is_reversed) {
            let module = &modules[place];
            let at = *known
                .entry((&module.name, module.is_library))
                .or_insert_with(|| {
                    weights.push((module, 0.0));
                    weights.len() - 1
                });
            weights[at].1 += weight;
        }
        weights.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let mut is_used = [false; HUES.len()];
        let mut hues = HashMap::new();
        for (module, _) in weights.iter().filter(|(module, _)| !module.is_library) {
            let mut slot = hash(shown_module(module)) as usize % HUES.len();
            for _ in 0..HUES.len() {
                if !is_used[slot] {
                    break;
                }
                slot = (slot + HUE_STEP) % HUES.len();
            }
            is_used[slot] = true;
            hues.insert(module.name.clone(), HUES[slot]);
        }
        Self { hues }
    }

    /// Returns the colour of a function, as red, green and blue.
    pub(crate) fn colour(&self, function: &str, module: &FunctionModule) -> [u8; 3] {
        let shade = (f64::from(hash(function) % 7) - 3.0) * 0.009;
        match self.hues.get(&module.name).filter(|_| !module.is_library) {
            Some(hue) => oklch(0.865 + shade, 0.06, f64::from(*hue)),
            None => oklch(0.905 + shade, 0.012, 250.0),
        }
    }
}

/// Returns the name under which the page shows a module.
fn shown_module(module: &FunctionModule) -> &str {
    match module.name.as_str() {
        "" => "(no module)",
        name => name,
    }
}

/// Returns the weight of each place, in the order in which the places first occur. A place counts
/// once for each stack, even if it calls itself.
fn weights_of_places(
    nodes: impl Iterator<Item = WeighedNode>,
    is_reversed: bool,
) -> Vec<(usize, f64)> {
    let mut weights: Vec<(usize, f64)> = Vec::new();
    let mut known: HashMap<usize, usize> = HashMap::new();
    let mut path: Vec<usize> = Vec::new();
    for node in nodes {
        path.truncate(node.depth);
        let own = match (is_reversed, node.depth) {
            (false, _) => node.own as f64,
            (true, 0) => node.total as f64,
            (true, _) => 0.0,
        };
        let with_callees = match path.contains(&node.place) {
            true => 0.0,
            false => node.total as f64,
        };
        let at = *known.entry(node.place).or_insert_with(|| {
            weights.push((node.place, 0.0));
            weights.len() - 1
        });
        weights[at].1 += OWN_WEIGHT * own + with_callees;
        path.push(node.place);
    }
    weights
}

/// Returns FNV-1a over the UTF-16 units of a text, as the page computes it.
fn hash(text: &str) -> u32 {
    text.encode_utf16().fold(2_166_136_261, |hash: u32, unit| {
        (hash ^ u32::from(unit)).wrapping_mul(16_777_619)
    })
}

/// Returns a colour of the space Oklch, whose hue is in degrees, as red, green and blue of sRGB.
fn oklch(lightness: f64, chroma: f64, hue: f64) -> [u8; 3] {
    let (sin, cos) = hue.to_radians().sin_cos();
    let (a, b) = (chroma * cos, chroma * sin);
    let long = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
    let medium = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
    let short = (lightness - 0.089_484_177_5 * a - 1.291_485_548_0 * b).powi(3);
    let channels = [
        4.076_741_662_1 * long - 3.307_711_591_3 * medium + 0.230_969_929_2 * short,
        -1.268_438_004_6 * long + 2.609_757_401_1 * medium - 0.341_319_396_5 * short,
        -0.004_196_086_3 * long - 0.703_418_614_7 * medium + 1.707_614_701_0 * short,
    ];
    channels.map(|linear: f64| {
        let value = match linear <= 0.003_130_8 {
            true => 12.92 * linear,
            false => 1.055 * linear.powf(1.0 / 2.4) - 0.055,
        };
        (255.0 * value).round().clamp(0.0, 255.0) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str, is_library: bool) -> FunctionModule {
        FunctionModule {
            name: name.to_string(),
            is_library,
        }
    }

    #[test]
    fn colours_are_those_of_a_browser() {
        // What Chromium draws. It computes with fewer digits, so a channel may differ by one.
        for (lightness, chroma, hue, drawn) in [
            (0.865, 0.06, 255.0, [185, 213, 250]),
            (0.905, 0.012, 250.0, [218, 224, 232]),
            (0.892, 0.06, 45.0, [255, 208, 187]),
            (0.838, 0.06, 150.0, [175, 213, 182_u8]),
        ] {
            let colour = oklch(lightness, chroma, hue);
            let is_near = |(a, b): (&u8, &u8)| a.abs_diff(*b) <= 1;
            assert!(
                colour.iter().zip(&drawn).all(is_near),
                "{colour:?} {drawn:?}"
            );
        }
    }

    #[test]
    fn texts_have_the_hashes_of_the_page() {
        assert_eq!(hash(""), 2_166_136_261);
        assert_eq!(hash("a"), 0xe40c_292c);
        assert_eq!(hash("foobar"), 0xbf9c_f968);
    }

    #[test]
    fn libraries_are_grey_and_modules_differ() {
        let names = ["(other)", "main", "parse", "lex", "malloc"];
        let modules = [
            module("", false),
            module("app", false),
            module("parser", false),
            module("lexer", false),
            module("libc.so.6", true),
        ];
        let node = |place: usize, own: i64, total: i64| WeighedNode {
            place,
            depth: place - 1,
            own,
            total,
        };
        let nodes = [node(1, 1, 10), node(2, 2, 9), node(3, 3, 7), node(4, 4, 4)];
        let colours = PageColours::new(nodes.into_iter(), &modules, false);
        let of = |place: usize| colours.colour(names[place], &modules[place]);
        let [red, green, blue] = of(4).map(i32::from);
        assert!((red - blue).abs() < 20 && (red - green).abs() < 20, "grey");
        assert_ne!(of(1), of(2));
        assert_ne!(of(2), of(3));
        let hues: Vec<u16> = ["app", "parser", "lexer"]
            .map(|name| colours.hues[name])
            .into();
        assert!(hues[0] != hues[1] && hues[1] != hues[2] && hues[0] != hues[2]);
    }
}
