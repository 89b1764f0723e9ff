//! A driver of Vulkan as a compiler: pipelines are made and never run.

use std::ffi::{CStr, CString};

use anyhow::{Context, Result, ensure};
use ash::vk;
use manyhands_engine::kernels::Tile;

use crate::forms::Form;

/// A driver's account of a pipeline.
#[derive(Debug)]
pub struct Compiled {
    /// Invocations that run in step.
    pub subgroup: u32,
    /// Numbers by the driver's names for them.
    pub statistics: Vec<(String, f64)>,
    /// The machine's instructions, as text.
    pub assembly: String,
}

/// An open device, which may have no hardware behind it.
pub struct Driver {
    device: ash::Device,
    executables: ash::khr::pipeline_executable_properties::Device,
    instance: ash::Instance,
    /// Keeps the library loaded.
    _entry: ash::Entry,
    /// The tiles whose matrices it multiplies.
    pub matrices: &'static [Tile],
    /// The device's name, and the driver's.
    pub names: [String; 2],
}

#[allow(unsafe_code, reason = "all of Vulkan is")]
impl Driver {
    /// The first device of the drivers that the environment names.
    ///
    /// # Errors
    /// If there is none, or it can't tell what it compiled.
    pub fn open() -> Result<Self> {
        // SAFETY: the system's own loader of Vulkan.
        let entry = unsafe { ash::Entry::load() }.context("there is no Vulkan loader")?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: as are all calls below: handles are alive, structs are those that the call takes.
        let instance = unsafe { entry.create_instance(&info, None) }?;
        let devices = unsafe { instance.enumerate_physical_devices() }?;
        let physical = *devices.first().context("the driver shows no device")?;
        let mut about = vk::PhysicalDeviceVulkan12Properties::default();
        let mut sizes = vk::PhysicalDeviceVulkan13Properties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut about).push_next(&mut sizes);
        unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
        let name = text(&properties.properties.device_name);
        let names = [name, format!("{} {}", text(&about.driver_name), text(&about.driver_info))];

        // As the engine chooses them.
        let matrices: &[Tile] = match (has_matrices(&entry, &instance, physical)?, sizes.max_subgroup_size) {
            (false, _) => &[],
            (true, 32) => &[Tile::Matrices16, Tile::LargeMatrices16],
            (true, _) => &[Tile::Matrices16],
        };
        let mut vulkan12 = vk::PhysicalDeviceVulkan12Features::default();
        let mut executables = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default();
        let mut of_matrices = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
        let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut vulkan12).push_next(&mut executables);
        let mut extensions = vec![ash::khr::pipeline_executable_properties::NAME.as_ptr()];
        if !matrices.is_empty() {
            features = features.push_next(&mut of_matrices);
            extensions.push(ash::khr::cooperative_matrix::NAME.as_ptr());
        }
        unsafe { instance.get_physical_device_features2(physical, &mut features) };
        let queue = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queue)
            .enabled_extension_names(&extensions)
            .push_next(&mut features);
        let device = unsafe { instance.create_device(physical, &info, None) }?;
        let executables = ash::khr::pipeline_executable_properties::Device::new(&instance, &device);
        Ok(Self { device, executables, instance, _entry: entry, matrices, names })
    }

    /// Compiles a form.
    ///
    /// # Errors
    /// If the driver refuses it.
    pub fn compile(&self, form: &Form) -> Result<Compiled> {
        let device = &self.device;
        let module = vk::ShaderModuleCreateInfo::default().code(&form.spirv);
        let module = unsafe { device.create_shader_module(&module, None) }?;
        let (group, layout) = self.layouts(form)?;
        let entry = CString::new(form.entry.as_str())?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(&entry);
        let wanted = vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR
            | vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR;
        let info = [vk::ComputePipelineCreateInfo::default().flags(wanted).stage(stage).layout(layout)];
        let made = unsafe { device.create_compute_pipelines(vk::PipelineCache::null(), &info, None) };
        let pipeline = made.map_err(|(_, error)| error)?[0];
        let compiled = self.read(pipeline);
        unsafe {
            device.destroy_pipeline(pipeline, None);
            device.destroy_pipeline_layout(layout, None);
            device.destroy_descriptor_set_layout(group, None);
            device.destroy_shader_module(module, None);
        }
        compiled
    }

    fn layouts(&self, form: &Form) -> Result<(vk::DescriptorSetLayout, vk::PipelineLayout)> {
        let bindings: Vec<_> = form
            .bindings
            .iter()
            .map(|it| {
                let storage = vk::DescriptorType::STORAGE_BUFFER;
                vk::DescriptorSetLayoutBinding::default()
                    .binding(it.number)
                    .descriptor_type(if it.is_uniform { vk::DescriptorType::UNIFORM_BUFFER } else { storage })
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let group = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        let group = unsafe { self.device.create_descriptor_set_layout(&group, None) }?;
        let groups = [group];
        let layout = vk::PipelineLayoutCreateInfo::default().set_layouts(&groups);
        Ok((group, unsafe { self.device.create_pipeline_layout(&layout, None) }?))
    }

    fn read(&self, pipeline: vk::Pipeline) -> Result<Compiled> {
        let info = vk::PipelineInfoKHR::default().pipeline(pipeline);
        let executables = unsafe { self.executables.get_pipeline_executable_properties(&info) }?;
        ensure!(executables.len() == 1, "the driver made {} programs of one kernel", executables.len());
        let info = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline);
        let statistics = unsafe { self.executables.get_pipeline_executable_statistics(&info) }?;
        let statistics = statistics.iter().map(|it| (text(&it.name), number(it))).collect();
        Ok(Compiled { subgroup: executables[0].subgroup_size, statistics, assembly: self.assembly(&info)? })
    }

    /// The last text of the driver that calls itself assembly.
    fn assembly(&self, info: &vk::PipelineExecutableInfoKHR<'_>) -> Result<String> {
        let mut texts = unsafe { self.executables.get_pipeline_executable_internal_representations(info) }?;
        let mut bytes: Vec<Vec<u8>> = texts.iter().map(|it| vec![0; it.data_size]).collect();
        for (text, bytes) in texts.iter_mut().zip(&mut bytes) {
            text.p_data = bytes.as_mut_ptr().cast();
        }
        let mut count = u32::try_from(texts.len())?;
        let read = self.executables.fp().get_pipeline_executable_internal_representations_khr;
        unsafe { read(self.device.handle(), info, &mut count, texts.as_mut_ptr()) }.result()?;
        let is_assembly = |it: &vk::PipelineExecutableInternalRepresentationKHR<'_>| {
            it.is_text == vk::TRUE && text(&it.name).contains("ssembly")
        };
        let found = texts.iter().zip(&bytes).rev().find(|(it, _)| is_assembly(it));
        Ok(found
            .map_or_else(String::new, |(_, bytes)| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()))
    }
}

/// Whether a device multiplies matrices of 16 × 16 16-bit floats, and adds in 32 bits.
#[allow(unsafe_code, reason = "all of Vulkan is")]
fn has_matrices(entry: &ash::Entry, instance: &ash::Instance, device: vk::PhysicalDevice) -> Result<bool> {
    // SAFETY: handles are alive; the function is asked for only where the device has its extension.
    let extensions = unsafe { instance.enumerate_device_extension_properties(device) }?;
    if !extensions.iter().any(|it| it.extension_name_as_c_str() == Ok(ash::khr::cooperative_matrix::NAME)) {
        return Ok(false);
    }
    let matrices = ash::khr::cooperative_matrix::Instance::new(entry, instance);
    let properties = unsafe { matrices.get_physical_device_cooperative_matrix_properties(device) }?;
    let (half, single) = (vk::ComponentTypeKHR::FLOAT16, vk::ComponentTypeKHR::FLOAT32);
    Ok(properties.iter().any(|it| {
        [it.m_size, it.n_size, it.k_size] == [16; 3]
            && [it.a_type, it.b_type] == [half; 2]
            && [it.c_type, it.result_type] == [single; 2]
            && it.scope == vk::ScopeKHR::SUBGROUP
    }))
}

#[allow(unsafe_code, reason = "all of Vulkan is")]
impl Drop for Driver {
    fn drop(&mut self) {
        // SAFETY: pipelines are destroyed where they are made; nothing runs.
        unsafe {
            self.device.destroy_device(None);
            self.instance.destroy_instance(None);
        }
    }
}

#[allow(unsafe_code, reason = "the format tells which field of the union is set")]
#[allow(clippy::cast_precision_loss, reason = "counts of instructions and cycles are far below 2^52")]
fn number(statistic: &vk::PipelineExecutableStatisticKHR<'_>) -> f64 {
    let value = statistic.value;
    // SAFETY: as the format says.
    unsafe {
        match statistic.format {
            vk::PipelineExecutableStatisticFormatKHR::BOOL32 => f64::from(value.b32),
            vk::PipelineExecutableStatisticFormatKHR::INT64 => value.i64 as f64,
            vk::PipelineExecutableStatisticFormatKHR::FLOAT64 => value.f64,
            _ => value.u64 as f64,
        }
    }
}

/// Text up to its end, in a field of fixed length.
fn text(chars: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|it| it.to_ne_bytes()[0]).collect();
    CStr::from_bytes_until_nul(&bytes).map(|it| it.to_string_lossy().into_owned()).unwrap_or_default()
}
