//! The adapters of a browser: it has no list, but gives an adapter of high performance, one of low power, and
//! one that computes on the CPU, on request; they may all be the same.

use std::cell::RefCell;

use js_sys::{Object, Promise, Reflect};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;

use super::super::super::{Info, Kind, list};
use super::kind;

/// Power preferences to request, the best first.
const REQUESTS: [&str; 3] = ["high-performance", "low-power", FALLBACK];
const FALLBACK: &str = "fallback";

/// An adapter, with all requests for which it was given.
struct FoundAdapter {
    info: Info,
    requests: Vec<&'static str>,
}

thread_local! {
    /// Requested once in the life of the page.
    static FOUND: RefCell<Option<Vec<FoundAdapter>>> = const { RefCell::new(None) };
}

/// Reason why a browser gives no adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// The browser has no WebGPU.
    #[serde(rename = "no_webgpu")]
    NoWebGpu,
    /// The browser has WebGPU for secure origins only, and the page's origin is not secure.
    InsecureOrigin,
    /// The browser has WebGPU, but gives no adapter.
    NoAdapter,
}

impl From<Missing> for crate::Error {
    fn from(missing: Missing) -> Self {
        let (problem, help) = match missing {
            Missing::NoWebGpu => {
                ("has no WebGPU", "use a recent Chrome, Edge, Safari or Firefox; the CPU adapter works in any browser")
            }
            Missing::InsecureOrigin => (
                "gives WebGPU to secure origins only, and this page is not from one",
                "open the page by `https://`, or from `localhost`",
            ),
            Missing::NoAdapter => (
                "has WebGPU, but gives no adapter",
                "switch graphics acceleration on in its settings, or update the driver; the CPU adapter works without",
            ),
        };
        Self::adapter("this browser", problem, help)
    }
}

/// Each adapter that the browser gives, once. Opens no device.
pub async fn enumerate() -> Vec<Info> {
    if FOUND.with(|found| found.borrow().is_none()) {
        let found = ask_for_all().await;
        FOUND.with(|place| *place.borrow_mut() = Some(found));
    }
    with_found(|found| found.iter().map(|found| found.info.clone()).collect())
}

/// Reason why there is no adapter; `None` if there is one.
pub async fn missing() -> Option<Missing> {
    if !enumerate().await.is_empty() {
        return None;
    }
    let is_secure = get(&js_sys::global(), "isSecureContext").as_bool().unwrap_or(true);
    Some(match entry() {
        Some(_) => Missing::NoAdapter,
        None if is_secure => Missing::NoWebGpu,
        None => Missing::InsecureOrigin,
    })
}

/// Requests for which an adapter was given: `high-performance`, `low-power`, `fallback`.
pub fn requested_as(info: &Info) -> Vec<&'static str> {
    with_found(|found| found.iter().find(|found| is_same(&found.info, info)).map(|found| found.requests.clone()))
        .unwrap_or_default()
}

/// Whether the browser gave this adapter.
pub(in super::super) fn is_known(info: &Info) -> bool {
    !requested_as(info).is_empty()
}

/// The adapter of an [`Info`], requested again: an adapter can give only one device.
pub(in super::super) async fn find(info: &Info) -> Option<wgpu::Adapter> {
    let request = *requested_as(info).first()?;
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::BROWSER_WEBGPU;
    let options = wgpu::RequestAdapterOptions {
        power_preference: match request {
            "low-power" => wgpu::PowerPreference::LowPower,
            "high-performance" => wgpu::PowerPreference::HighPerformance,
            _ => wgpu::PowerPreference::None,
        },
        force_fallback_adapter: request == FALLBACK,
        ..Default::default()
    };
    wgpu::Instance::new(descriptor).request_adapter(&options).await.ok()
}

fn with_found<T>(use_it: impl FnOnce(&[FoundAdapter]) -> T) -> T {
    FOUND.with(|found| use_it(found.borrow().as_deref().unwrap_or_default()))
}

fn is_same(a: &Info, b: &Info) -> bool {
    let plain = |info: &Info| Info { index: 0, ..info.clone() };
    plain(a) == plain(b)
}

async fn ask_for_all() -> Vec<FoundAdapter> {
    let mut all: Vec<FoundAdapter> = Vec::new();
    for request in REQUESTS {
        let Some(info) = ask_for(request).await else { continue };
        match all.iter_mut().find(|found| found.info == info) {
            Some(found) => found.requests.push(request),
            None => all.push(FoundAdapter { info, requests: vec![request] }),
        }
    }
    all
}

/// `navigator.gpu`, where there is one.
fn entry() -> Option<JsValue> {
    let gpu = get(&get(&js_sys::global(), "navigator"), "gpu");
    gpu.is_object().then_some(gpu)
}

/// Information of `requestAdapter` about its adapter. wgpu passes on only the description, which browsers leave
/// empty.
async fn ask_for(request: &str) -> Option<Info> {
    let options = Object::new();
    let (key, value) = match request {
        FALLBACK => ("forceFallbackAdapter", JsValue::TRUE),
        preference => ("powerPreference", JsValue::from_str(preference)),
    };
    Reflect::set(&options, &key.into(), &value).ok()?;
    let gpu = entry()?;
    let function: js_sys::Function = get(&gpu, "requestAdapter").dyn_into().ok()?;
    let promise: Promise = function.call1(&gpu, &options).ok()?.dyn_into().ok()?;
    let adapter = JsFuture::from(promise).await.ok()?;
    adapter.is_object().then(|| info(&get(&adapter, "info")))
}

fn info(adapter_info: &JsValue) -> Info {
    let text = |key: &str| get(adapter_info, key).as_string().unwrap_or_default();
    let driver = [text("vendor"), text("architecture")].join(" ").trim().to_owned();
    let name = [text("description"), text("device"), driver.clone()].into_iter().find(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| "a GPU without a name".into());
    let is_fallback = get(adapter_info, "isFallbackAdapter").is_truthy();
    let is_software = is_fallback || list::is_software_name(&driver);
    let kind = if is_software { Kind::Software } else { kind(wgpu::DeviceType::Other, &name) };
    Info { index: 0, kind, name, backend: "webgpu".into(), driver, vendor: 0, device: 0, bus_id: String::new() }
}

/// A property; undefined where there is none.
fn get(object: &JsValue, key: &str) -> JsValue {
    Reflect::get(object, &key.into()).unwrap_or(JsValue::UNDEFINED)
}
